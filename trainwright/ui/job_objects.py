"""The objects of a TrainJob on the page: as they are built, with the contributor of each line, and as they are in the cluster.

A kind that may not be read does not hide the others. Objects are shown without managed fields, and without the data of Secrets,
which never leaves the server.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypedDict

from trainwright.api import names
from trainwright.api.errors import ApiError, Forbidden, Invalid, NotFound
from trainwright.api.kinds import CONFIG_MAP, COSCHEDULING_GROUP, JOB, JOBSET, POD, SECRET, TRAINJOB, VOLCANO_GROUP, Kind
from trainwright.api.objects import Obj, is_controlled_by, labels_of, name_of, namespace_of, owners_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.pods import pods_of
from trainwright.materialize import ProgressReports, Settings, load_snapshot, snapshot_name
from trainwright.materialize.contributions import Contribution, Contributors, materialize_with_contributors
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.runtime_lookup import resolve_in_cluster
from trainwright.text.yaml_reader import YamlDocument, read_yaml_documents
from trainwright.text.yaml_writer import to_yaml
from trainwright.ui.call import Call, Endpoint, Json

_URL = "KUBEFLOW_TRAINER_SERVER_URL"
MIXED = ""
"""The contributor of a line that opens an object or a list with parts of several contributors."""
KINDS = {
    f"{kind.api_version}/{kind.kind}": kind for kind in (JOBSET, JOB, POD, COSCHEDULING_GROUP, VOLCANO_GROUP, CONFIG_MAP, SECRET)
}
"""By `apiVersion/kind`."""
HIDDEN = "(hidden)"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation with the whole object, which repeats the data of a Secret."""


def show_objects(call: Call) -> Json:
    """Return the objects of a TrainJob as they are built, with the contributors of their lines, and a list of those in the cluster.

    If they cannot be built, `problem` says why, and `built` is empty. Raises NotFound, ApiError.
    """
    cluster, trainjob = call.session.cluster, _trainjob(call)
    answer: Json = {"uid": uid_of(trainjob), "runtime": None, "built": [], "problem": None}
    built: list[Contribution] = []
    try:
        used = used_runtime(cluster, trainjob)
        answer["runtime"] = {
            "kind": used.runtime["kind"],
            "name": name_of(used.runtime),
            "source": used.source,
            "note": used.note,
        }
        built = built_objects(cluster, trainjob, used.runtime)
        if not built:
            answer["problem"] = {"reason": "ManagedBy", "message": f"{trainjob['spec'].get('managedBy')} builds them"}
    except (ApiError, TypeError) as error:  # TypeError: an installed plugin is not a policy
        answer["problem"] = {"reason": type(error).__name__, "message": str(error)}
    answer["built"] = [_built(each) for each in built]
    live = list_live_objects(cluster, trainjob, [each.object for each in built])
    return {**answer, "live": live.found, "denied": live.denied}


def _trainjob(call: Call) -> Obj:
    return call.session.cluster.get(TRAINJOB, call.path["name"], call.namespace)


def _built(contribution: Contribution) -> Json:
    obj = shown_object(contribution.object)
    return {
        "type": f"{obj['apiVersion']}/{obj['kind']}",
        "kind": obj["kind"],
        "name": name_of(obj),
        "yaml": annotated_yaml(obj, contribution.contributors),
    }


def show_live_object(call: Call) -> Json:
    """Return one object of a TrainJob as the cluster has it. Raises ValueError, NotFound, ApiError."""
    kind = KINDS.get(call.query.get("type", ""))
    if kind is None:
        raise ValueError(f"type: expected one of {', '.join(KINDS)}")
    name = call.query.get("object", "")
    trainjob = _trainjob(call)
    obj = call.session.cluster.get(kind, name, call.namespace)
    if not belongs_to(obj, trainjob):
        raise NotFound(f"the {kind.kind} {name} does not belong to the TrainJob {name_of(trainjob)}")
    return {"uid": uid_of(obj), "text": to_yaml(shown_object(obj))}


ROUTES = (
    Endpoint("GET", "/trainjobs/{namespace}/{name}/objects", show_objects),
    Endpoint("GET", "/trainjobs/{namespace}/{name}/object", show_live_object),
)


@dataclass(frozen=True)
class UsedRuntime:
    """The runtime of a TrainJob: the snapshot from which its objects were built, or the one that its reference names now.

    `note` says why it is not the snapshot.
    """

    runtime: Obj
    source: Literal["snapshot", "cluster", "bundled"]
    note: str = ""


def used_runtime(cluster: JobsClient, trainjob: Obj) -> UsedRuntime:
    """Return the runtime of a TrainJob. Raises RuntimeNotFound, ApiError."""
    try:
        snapshot = cluster.get(CONFIG_MAP, snapshot_name(trainjob), namespace_of(trainjob))
        return UsedRuntime(load_snapshot(snapshot, trainjob), "snapshot")
    except NotFound:
        note = "there is no snapshot of the runtime: this is the runtime as it is now, which may have changed since the job was built"
    except Forbidden as error:
        note = f"the snapshot of the runtime may not be read ({error.message}): this is the runtime as it is now"
    except Invalid as error:
        note = f"{error.message}: this is the runtime as it is now"
    has_bundled = cluster.uses_bundled_runtimes
    with suppress(ApiError):  # without an answer, only the runtimes of the cluster count
        has_bundled = has_bundled or cluster.is_embedded()
    resolved = resolve_in_cluster(cluster, trainjob["spec"]["runtimeRef"], namespace_of(trainjob), bundled=has_bundled)
    return UsedRuntime(resolved.runtime, resolved.source, note)


def built_objects(cluster: JobsClient, trainjob: Obj, runtime: Obj) -> list[Contribution]:
    """Return the objects of a TrainJob; keys in its Secrets are placeholders. Raises Invalid, ApiError."""
    return materialize_with_contributors(trainjob, runtime, settings=Settings(progress=_progress_reports(cluster, trainjob)))


def _progress_reports(cluster: JobsClient, trainjob: Obj) -> ProgressReports | None:
    """Return where the controller that built the TrainJob lets it report progress, as its objects say; None if they do not."""
    name, namespace = name_of(trainjob), namespace_of(trainjob)
    try:
        config = cluster.get(CONFIG_MAP, f"{name}{names.TLS_CONFIG_SUFFIX}", namespace)
        jobset = cluster.get(JOBSET, name, namespace)
    except ApiError:  # unknown: the objects are shown without progress reports
        return None
    certificate = (config.get("data") or {}).get("ca.crt")
    path = f"/apis/{names.progress_audience(namespace, name)}"
    if certificate is None or not is_controlled_by(config, trainjob):  # one of an earlier job of this name
        return None
    for job in jobset["spec"].get("replicatedJobs") or []:
        for container in job["template"]["spec"]["template"]["spec"].get("containers") or []:
            for variable in container.get("env") or []:
                if variable.get("name") == _URL and str(variable.get("value")).endswith(path):
                    return ProgressReports(str(variable["value"]).removesuffix(path), str(certificate))
    return None


class AnnotatedYaml(TypedDict):
    """`runs` are pairs of a number of lines and an index in `contributors`, in order; together they cover `text`."""

    text: str
    contributors: list[str]
    runs: list[tuple[int, int]]


def annotated_yaml(obj: Obj, contributors: Contributors) -> AnnotatedYaml:
    """Return an object as YAML with the contributor of each line."""
    text = to_yaml(obj)
    [document] = read_yaml_documents(text, with_lines=True)
    lines: list[str | None] = [None] * text.count("\n")
    _attribute(document, document.value, contributors, lines)
    known: list[str] = []
    filled = MIXED
    for number, contributor in enumerate(lines):  # further lines of a value have none: theirs is that of its first line
        filled = filled if contributor is None else contributor
        lines[number] = filled
        if filled not in known:
            known.append(filled)
    runs = [(len(list(group)), known.index(str(name))) for name, group in groupby(lines)]
    return AnnotatedYaml(text=text, contributors=known, runs=runs)


def _attribute(document: YamlDocument, value: Any, tree: Any, lines: list[str | None]) -> str:
    """Set the contributors of the lines of a value's parts; returns the contributor of all of them, or MIXED."""
    if not isinstance(value, dict | list) or not value:
        return str(tree)
    found: set[str] = set()
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in entries:
        contributor = _attribute(document, item, tree[key], lines)
        begins_with_its_first_entry = isinstance(value, list) and isinstance(item, dict | list) and bool(item)
        if not begins_with_its_first_entry:
            lines[document.lines[id(value)][key] - 1] = contributor
        found.add(contributor)
    return found.pop() if len(found) == 1 else MIXED


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
    wanted |= {
        (kind, name_of(obj)): None for obj in built if (kind := KINDS.get(f"{obj['apiVersion']}/{obj['kind']}")) is not None
    }
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


def _deny(denied: list[Denied], kind: Kind, error: ApiError) -> None:
    entry = Denied(kind=kind.kind, reason=error.reason, message=error.message)
    if entry["kind"] not in [each["kind"] for each in denied]:
        denied.append(entry)


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


def _jobs_of(cluster: Cluster, trainjob: Obj) -> list[Obj]:
    selector = f"{names.JOBSET_NAME_LABEL}={name_of(trainjob)}"
    return sorted(cluster.list(JOB, namespace_of(trainjob), label_selector=selector).items, key=name_of)


def belongs_to(obj: Obj, trainjob: Obj) -> bool:
    """Whether an object is the TrainJob's: it or its JobSet owns the object, or the object is a Job or pod of that JobSet."""
    if uid_of(obj) == uid_of(trainjob) or labels_of(obj).get(names.JOBSET_NAME_LABEL) == name_of(trainjob):
        return True
    owners = owners_of(obj)
    return any(owner.get("uid") == uid_of(trainjob) or _is_jobset_of(owner, trainjob) for owner in owners)


def _is_jobset_of(owner: Obj, trainjob: Obj) -> bool:
    return owner.get("kind") == JOBSET.kind and owner.get("name") == name_of(trainjob)


def shown_object(obj: Obj) -> Obj:
    """Return a copy to show. The argument is not modified."""
    metadata = {field: value for field, value in (obj.get("metadata") or {}).items() if field != "managedFields"}
    shown = {**obj, "metadata": metadata}
    if obj.get("kind") != "Secret":
        return shown
    if metadata.get("annotations"):
        kept = {name: value for name, value in metadata["annotations"].items() if name != _LAST_APPLIED}
        metadata["annotations"] = kept
    for part in ("data", "stringData"):
        if isinstance(obj.get(part), dict):
            shown[part] = dict.fromkeys(obj[part], HIDDEN)
    return shown
