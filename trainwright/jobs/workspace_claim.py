"""The claim of a workspace, before a job that needs it: looked at, or made where a new one is asked for; and whom it goes with.

Making it is repeatable: a claim that a killed try has made carries the run's name, and the next try finds it. It is tied to its
jobs after they exist, again at every adoption, so that a crash between leaves none that nobody finds.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from trainwright.api.kinds import CLAIM, STORAGE_CLASS
from trainwright.api.nearest import nearest
from trainwright.api.objects import Obj, annotations_of, is_deleting, name_of, owners_of, uid_of
from trainwright.api.quantities import Quantity, parse_quantity
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.errors import WorkspaceUnfit
from trainwright.jobs.identity import Identity
from trainwright.jobs.label_values import label_value
from trainwright.jobs.workspace import NewClaim, Workspace

GONE_SECONDS = 30.0
"""How long a claim of that name that is being deleted is waited for."""
_LOOK_SECONDS = 0.5
_MOST_TRIES = 10
_FOR_SEVERAL = "ReadWriteMany"
_FOR_ONE_NODE = ("ReadWriteOnce", "ReadWriteOncePod")
log = logging.getLogger(__name__)


def ensure_claim(cluster: Cluster, workspace: Workspace, identity: Identity, namespace: str, nodes: int) -> None:
    """See to it that the claim is there for a job of that many nodes; what is odd about it is a warning.

    One that is to be made is made, or the one that exists is compared with the wish. Who may not read claims is only warned.
    Raises WorkspaceUnfit, and ApiError where a claim cannot be made.
    """
    try:
        existing = _existing(cluster, workspace, namespace)
    except Forbidden as error:
        _warn(workspace, f"cannot be looked at: {error.message}")
        if workspace.new is not None:
            with contextlib.suppress(AlreadyExists, Forbidden):
                _create(cluster, workspace, workspace.new, identity, namespace, nodes)
        return
    if existing is None and workspace.new is not None:
        existing = _made(cluster, workspace, workspace.new, identity, namespace, nodes)
    if existing is None:
        _warn(workspace, f"does not exist in {namespace}: pods wait for it; ask for a new one with ?size=, or create it")
        return
    for doubt in _doubts(existing, nodes):
        _warn(workspace, doubt)
    if workspace.new is not None:
        _check_wish(existing, workspace, workspace.new, identity)


def tie_claim(cluster: Cluster, workspace: Workspace, identity: Identity, trainjob: Obj) -> None:
    """With `retain` = delete: let the claim go with the TrainJob, and with the others that it is tied to. Again changes nothing.

    A claim that this run has not made is left alone; where it cannot be tied it stays, with a warning.
    """
    if workspace.new is None or workspace.new.retain == "keep":
        return
    try:
        _tie(cluster, workspace.claim, identity, trainjob)
    except ApiError as error:
        _warn(workspace, f"will not be deleted with TrainJob {name_of(trainjob)}: {error.message}")


def _existing(cluster: Cluster, workspace: Workspace, namespace: str) -> Obj | None:
    """The claim; one on its way out is waited for where a new one is to take its place. Raises WorkspaceUnfit."""
    deadline = time.monotonic() + GONE_SECONDS
    while True:
        try:
            claim = cluster.get(CLAIM, workspace.claim, namespace)
        except NotFound:
            return None
        if not is_deleting(claim) or workspace.new is None:
            return claim
        if time.monotonic() >= deadline:
            raise WorkspaceUnfit(
                f"workspace: the claim {workspace.claim!r} is being deleted, and pods that use it keep it; try again",
                retryable=True,
            )
        time.sleep(_LOOK_SECONDS)


def _made(cluster: Cluster, workspace: Workspace, new: NewClaim, identity: Identity, namespace: str, nodes: int) -> Obj:
    try:
        return _create(cluster, workspace, new, identity, namespace, nodes)
    except AlreadyExists:  # another try was faster
        return cluster.get(CLAIM, workspace.claim, namespace)
    except Forbidden as error:
        raise Forbidden(
            f"workspace: the claim {workspace.claim!r} does not exist and cannot be made: {error.message}; grant create on "
            "persistentvolumeclaims, or name one that exists"
        ) from error


def _create(cluster: Cluster, workspace: Workspace, new: NewClaim, identity: Identity, namespace: str, nodes: int) -> Obj:
    """Create-only. Raises AlreadyExists, Forbidden."""
    access = new.access or (_FOR_SEVERAL if nodes > 1 else _FOR_ONE_NODE[0])
    _look_for_class(cluster, workspace, new)
    claim = cluster.create(_manifest(workspace, new, access, identity, namespace))
    log.info("claim made name=%s size=%s access=%s nodes=%d retain=%s", name_of(claim), new.size, access, nodes, new.retain)
    return claim


def _manifest(workspace: Workspace, new: NewClaim, access: str, identity: Identity, namespace: str) -> Obj:
    spec: Obj = {"accessModes": [access], "resources": {"requests": {"storage": new.size}}}
    if new.storage_class:
        spec["storageClassName"] = new.storage_class
    metadata = {
        "name": workspace.claim,
        "namespace": namespace,
        "labels": {names.MANAGED_BY_LABEL: "trainwright", names.RUN_LABEL: label_value(identity.run)},
        "annotations": {names.OWNER_ANNOTATION: _run_of(identity)},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _look_for_class(cluster: Cluster, workspace: Workspace, new: NewClaim) -> None:
    """Warn of a class that does not exist. A cluster that has no classes, or does not show them, is believed."""
    if not new.storage_class:
        return
    try:
        classes = [name_of(entry) for entry in cluster.list(STORAGE_CLASS).items]
    except ApiError as error:
        log.debug("storage classes are not looked at error=%s", error.message)
        return
    if new.storage_class not in classes:
        advice = nearest(new.storage_class, classes) or "this cluster has none"
        _warn(
            workspace, f"asks for the StorageClass {new.storage_class!r}, which does not exist: pods wait until it does; {advice}"
        )


def _doubts(claim: Obj, nodes: int) -> Iterator[str]:
    modes = _modes(claim)
    if is_deleting(claim):
        yield "is being deleted: pods that start now wait for ever"
    if (claim.get("status") or {}).get("phase") == "Lost":
        yield "has lost its volume: pods wait for it"
    if modes and not {_FOR_SEVERAL, *_FOR_ONE_NODE} & set(modes):
        yield f"is {', '.join(modes)}: nobody can write to it"
    elif nodes > 1 and modes and _FOR_SEVERAL not in modes:
        yield (
            f"is {', '.join(modes)}, and {nodes} nodes are to share it: pods on other nodes than the first wait for ever; take a "
            f"claim of a class with {_FOR_SEVERAL}, or num_nodes=1, or keep all pods on one node with a node_selector"
        )


def _check_wish(claim: Obj, workspace: Workspace, new: NewClaim, identity: Identity) -> None:
    """A claim of this run is taken as it is; another's must be as good as the wish. Raises WorkspaceUnfit."""
    differing = list(_differences(claim, new))
    if _is_ours(claim, identity):
        for difference in differing:
            _warn(workspace, f"was made by this run before: {difference}")
        return
    if differing:
        raise WorkspaceUnfit(
            f"workspace: the claim {workspace.claim!r} exists and is another's: {'; '.join(differing)}; choose another name, or "
            "name it without ?size= to use it as it is"
        )
    if new.retain == "delete":
        _warn(workspace, "was there before, and is not deleted with the job")


def _differences(claim: Obj, new: NewClaim) -> Iterator[str]:
    size = _size(claim)
    if size < parse_quantity(new.size):
        yield f"size: it has {size}, {new.size} is asked for"
    if new.access and new.access not in _modes(claim):
        yield f"access: it is {', '.join(_modes(claim)) or 'nothing'}, {new.access} is asked for"
    has = claim["spec"].get("storageClassName") or ""
    if new.storage_class and has and has != new.storage_class:
        yield f"class: it is {has}, {new.storage_class} is asked for"


def _size(claim: Obj) -> Quantity:
    """What it has got, else what it asks for."""
    capacity = ((claim.get("status") or {}).get("capacity") or {}).get("storage")
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return parse_quantity(capacity or requests.get("storage") or 0)


def _modes(claim: Obj) -> list[str]:
    return [str(mode) for mode in claim["spec"].get("accessModes") or []]


def _tie(cluster: Cluster, name: str, identity: Identity, trainjob: Obj) -> None:
    reference = {key: trainjob[key] for key in ("apiVersion", "kind")} | {"name": name_of(trainjob), "uid": uid_of(trainjob)}
    for _ in range(_MOST_TRIES):
        claim = cluster.get(CLAIM, name, trainjob["metadata"]["namespace"])
        if not _is_ours(claim, identity) or any(owner["uid"] == reference["uid"] for owner in owners_of(claim)):
            return
        metadata = {
            "resourceVersion": claim["metadata"]["resourceVersion"],
            "ownerReferences": [*owners_of(claim), reference],
        }
        try:
            cluster.patch(CLAIM, name, {"metadata": metadata}, trainjob["metadata"]["namespace"])
        except Conflict:  # it was bound meanwhile
            continue
        return
    raise Conflict(f"it changed {_MOST_TRIES} times while it was being tied")


def _is_ours(claim: Obj, identity: Identity) -> bool:
    return annotations_of(claim).get(names.OWNER_ANNOTATION) == _run_of(identity)


def _run_of(identity: Identity) -> str:
    return f"{identity.owner}/{identity.run}"


def _warn(workspace: Workspace, words: str) -> None:
    log.warning("workspace claim=%s %s", workspace.claim, words)
