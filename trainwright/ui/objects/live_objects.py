"""The objects of a TrainJob that the cluster has now. A kind that may not be read does not hide the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypedDict

from trainwright.api import names
from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import (
    CONFIG_MAP,
    COSCHEDULING_GROUP,
    JOB,
    JOBSET,
    POD,
    SECRET,
    VOLCANO_GROUP,
    Kind,
)
from trainwright.api.objects import Obj, labels_of, name_of, namespace_of, owners_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.pods import pods_of
from trainwright.materialize import snapshot_name

KINDS = {
    f"{kind.api_version}/{kind.kind}": kind for kind in (JOBSET, JOB, POD, COSCHEDULING_GROUP, VOLCANO_GROUP, CONFIG_MAP, SECRET)
}
"""By `apiVersion/kind`."""


class LiveObject(TypedDict):
    """`type` is a key of KINDS; `status` a word such as a pod's phase, which may be empty."""

    type: str
    kind: str
    name: str
    uid: str
    created: str
    status: str


class Denied(TypedDict):
    """A kind that could not be read, and why."""

    kind: str
    reason: str
    message: str


class LiveObjects(NamedTuple):
    """The objects that were found, and the kinds that could not be read."""

    found: list[LiveObject]
    denied: list[Denied]


def list_live_objects(cluster: Cluster, trainjob: Obj, built: Iterable[Obj]) -> LiveObjects:
    """Return the objects of a TrainJob; `built` are those that are built from it, by whose names companions are looked up."""
    name, namespace = name_of(trainjob), namespace_of(trainjob)
    wanted = {(CONFIG_MAP, snapshot_name(trainjob)): None, (JOBSET, name): None}
    wanted |= {(kind, name_of(obj)): None for obj in built if (kind := KINDS.get(_type_of(obj))) is not None}
    order = list(KINDS.values())
    found: list[LiveObject] = []
    denied: list[Denied] = []
    for kind, object_name in sorted(wanted, key=lambda key: order.index(key[0])):
        try:
            obj = cluster.get(kind, object_name, namespace)
        except NotFound:
            continue
        except ApiError as error:
            _deny(denied, kind, error)
            continue
        if belongs_to(obj, trainjob):
            found.append(_live_object(kind, obj))
    for kind, read in ((JOB, _jobs_of), (POD, pods_of)):
        try:
            found.extend(_live_object(kind, obj) for obj in read(cluster, trainjob) if belongs_to(obj, trainjob))
        except NotFound:
            continue
        except ApiError as error:
            _deny(denied, kind, error)
    return LiveObjects(found, denied)


def belongs_to(obj: Obj, trainjob: Obj) -> bool:
    """Whether an object is the TrainJob's: it or its JobSet owns the object, or the object is a Job or pod of that JobSet."""
    if uid_of(obj) == uid_of(trainjob) or labels_of(obj).get(names.JOBSET_NAME_LABEL) == name_of(trainjob):
        return True
    owners = owners_of(obj)
    return any(owner.get("uid") == uid_of(trainjob) or _is_jobset_of(owner, trainjob) for owner in owners)


def _is_jobset_of(owner: Obj, trainjob: Obj) -> bool:
    return owner.get("kind") == JOBSET.kind and owner.get("name") == name_of(trainjob)


def _jobs_of(cluster: Cluster, trainjob: Obj) -> list[Obj]:
    selector = f"{names.JOBSET_NAME_LABEL}={name_of(trainjob)}"
    return sorted(cluster.list(JOB, namespace_of(trainjob), label_selector=selector).items, key=name_of)


def _deny(denied: list[Denied], kind: Kind, error: ApiError) -> None:
    entry = Denied(kind=kind.kind, reason=error.reason, message=error.message)
    if entry["kind"] not in [each["kind"] for each in denied]:
        denied.append(entry)


def _type_of(obj: Obj) -> str:
    return f"{obj['apiVersion']}/{obj['kind']}"


def _live_object(kind: Kind, obj: Obj) -> LiveObject:
    return LiveObject(
        type=f"{kind.api_version}/{kind.kind}",
        kind=kind.kind,
        name=name_of(obj),
        uid=uid_of(obj),
        created=str(obj["metadata"].get("creationTimestamp") or ""),
        status=_status_of(obj),
    )


def _status_of(obj: Obj) -> str:
    status = obj.get("status") or {}
    if phase := status.get("phase"):
        return str(phase)
    held = [str(each.get("type")) for each in status.get("conditions") or [] if each.get("status") == "True"]
    return held[-1] if held else ""
