"""Checks or creates the PersistentVolumeClaim of a workspace before a job is submitted, sets its owners, and finds its folder on
this machine.

Creation is idempotent: the claim is annotated with the run, so that a retry after a crash finds it. Its owner references are set
after the job exists, and again at every adoption. Steps beside an embedded cluster mount nothing, and use the claim's folder
instead.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path

from trainwright.api import names
from trainwright.api.errors import AlreadyExists, ApiError, Forbidden, NotFound
from trainwright.api.kinds import CLAIM, STORAGE_CLASS
from trainwright.api.objects import Obj, annotations_of, is_deleting, name_of, namespace_of, owners_of
from trainwright.api.quantities import parse_quantity
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.errors import WorkspaceMismatch
from trainwright.jobs.request.workspace import NewClaim, Workspace
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.run_folder import label_value
from trainwright.jobs.submit.owned_objects import set_owners, trainjob_reference
from trainwright.submission import JobsClient
from trainwright.text.suggest import suggest

DELETION_WAIT_SECONDS = 30.0
"""Seconds to wait for a claim that is being deleted."""
_POLL_SECONDS = 0.5
_FOR_SEVERAL = "ReadWriteMany"
_FOR_ONE_NODE = ("ReadWriteOnce", "ReadWriteOncePod")
log = logging.getLogger(__name__)
MOUNT = "/workspace"
"""Where pods of steps mount a claim, unless another path is given."""
_FOLDER_SECONDS, _FOLDER_POLL_SECONDS = 10.0, 0.05
"""Within this time an embedded cluster says which folder a new claim is."""


def ensure_claim(
    cluster: Cluster,
    workspace: Workspace,
    identity: Identity,
    namespace: str,
    nodes: int,
    *,
    deletion_wait_seconds: float = DELETION_WAIT_SECONDS,
    poll_seconds: float = _POLL_SECONDS,
) -> None:
    """Check the claim for a job with this number of nodes, and log warnings about it; create it if a new claim is requested.

    An existing claim is compared with the requested one; one that is being deleted is polled until it is gone, up to
    `deletion_wait_seconds`. Without permission to read claims there is only a warning.
    Raises WorkspaceMismatch, and ApiError if a claim cannot be created.
    """
    try:
        existing = _existing(cluster, workspace, namespace, deletion_wait_seconds, poll_seconds)
    except Forbidden as error:  # an optional right; that to create claims may be there without it
        _warn(workspace, f"cannot be read: {error.message}")
        if workspace.new is not None:
            with contextlib.suppress(AlreadyExists, Forbidden):
                _create(cluster, workspace, workspace.new, identity, namespace, nodes)
        return
    if existing is None and workspace.new is not None:
        existing = _create_or_get(cluster, workspace, workspace.new, identity, namespace, nodes)
    if existing is None:
        _warn(workspace, f"does not exist in {namespace}: pods wait for it; request a new one with ?size=, or create it")
        return
    for warning in _claim_warnings(existing, nodes):
        _warn(workspace, warning)
    if workspace.new is not None:
        _check_existing_claim(existing, workspace, workspace.new, identity)


def _existing(
    cluster: Cluster, workspace: Workspace, namespace: str, deletion_wait_seconds: float, poll_seconds: float
) -> Obj | None:
    """Return the claim, or None; if a new one is requested, waits for a deletion to finish. Raises WorkspaceMismatch."""
    deadline = time.monotonic() + deletion_wait_seconds
    while True:
        try:
            claim = cluster.get(CLAIM, workspace.claim, namespace)
        except NotFound:
            return None
        if not is_deleting(claim) or workspace.new is None:  # nobody has asked for a new one in its place
            return claim
        if time.monotonic() >= deadline:
            raise WorkspaceMismatch(
                f"workspace: the claim {workspace.claim!r} is being deleted, but pods still use it; try again",
                retryable=True,
            )
        time.sleep(poll_seconds)


def _warn(workspace: Workspace, text: str) -> None:
    log.warning("event=workspace_warning claim=%s warning=the claim %s", workspace.claim, text)


def _create(cluster: Cluster, workspace: Workspace, new: NewClaim, identity: Identity, namespace: str, nodes: int) -> Obj:
    """Create the claim. Raises AlreadyExists, Forbidden."""
    _warn_if_class_missing(cluster, workspace, new)
    claim = cluster.create(claim_manifest(workspace, new, identity, namespace, nodes))
    access = claim["spec"]["accessModes"][0]
    log.info(
        "event=claim_created name=%s size=%s access=%s nodes=%d retain=%s", name_of(claim), new.size, access, nodes, new.retain
    )
    return claim


def _warn_if_class_missing(cluster: Cluster, workspace: Workspace, new: NewClaim) -> None:
    """Warn if the StorageClass does not exist. Nothing is checked if classes cannot be listed."""
    if not new.storage_class:
        return
    try:
        classes = [name_of(entry) for entry in cluster.list(STORAGE_CLASS).items]
    except ApiError as error:  # a right of administrators on many clusters
        log.debug("event=storage_class_not_checked error=%s", error.message)
        return
    if new.storage_class not in classes:
        hint = suggest(new.storage_class, classes) or "this cluster has none"
        _warn(
            workspace, f"requests the StorageClass {new.storage_class!r}, which does not exist: pods wait until it does; {hint}"
        )


def _create_or_get(cluster: Cluster, workspace: Workspace, new: NewClaim, identity: Identity, namespace: str, nodes: int) -> Obj:
    try:
        return _create(cluster, workspace, new, identity, namespace, nodes)
    except AlreadyExists:  # created concurrently
        return cluster.get(CLAIM, workspace.claim, namespace)
    except Forbidden as error:
        raise Forbidden(
            f"workspace: the claim {workspace.claim!r} does not exist and cannot be created: {error.message}; grant create on "
            "persistentvolumeclaims, or use an existing claim"
        ) from error


def _claim_warnings(claim: Obj, nodes: int) -> Iterator[str]:
    modes = _modes(claim)
    if is_deleting(claim):
        yield "is being deleted: new pods will never start"
    if (claim.get("status") or {}).get("phase") == "Lost":
        yield "has lost its volume: pods cannot start"
    if modes and not {_FOR_SEVERAL, *_FOR_ONE_NODE} & set(modes):
        yield f"is {', '.join(modes)}: it is not writable"
    elif nodes > 1 and modes and _FOR_SEVERAL not in modes:
        yield (
            f"is {', '.join(modes)}, but {nodes} nodes share it: pods on other nodes than the first never start; use a claim "
            f"of a class with {_FOR_SEVERAL}, or num_nodes=1, or keep all pods on one node with a node_selector"
        )


def _modes(claim: Obj) -> list[str]:
    return [str(mode) for mode in claim["spec"].get("accessModes") or []]


def _check_existing_claim(claim: Obj, workspace: Workspace, new: NewClaim, identity: Identity) -> None:
    """Warn of mismatches in a claim that this run created; raise WorkspaceMismatch for mismatches in any other."""
    differing = list(_claim_mismatches(claim, new))
    if _is_created_by(claim, identity):
        for difference in differing:
            _warn(workspace, f"was created by this run before: {difference}")
        return
    if differing:
        raise WorkspaceMismatch(
            f"workspace: the claim {workspace.claim!r} exists and was not created by this run: {'; '.join(differing)}; use another "
            "name, or omit ?size= to use the existing claim"
        )
    if new.retain == "delete":
        _warn(workspace, "existed before, and is not deleted with the job")


def _claim_mismatches(claim: Obj, new: NewClaim) -> Iterator[str]:
    capacity = ((claim.get("status") or {}).get("capacity") or {}).get("storage")
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    size = parse_quantity(capacity or requests.get("storage") or 0)  # an unbound claim has no capacity yet
    if size < parse_quantity(new.size):
        yield f"size: it has {size}, {new.size} is requested"
    if new.access and new.access not in _modes(claim):
        yield f"access: it is {', '.join(_modes(claim)) or 'empty'}, {new.access} is requested"
    has = claim["spec"].get("storageClassName") or ""
    if new.storage_class and has and has != new.storage_class:
        yield f"class: it is {has}, {new.storage_class} is requested"


def _is_created_by(claim: Obj, identity: Identity) -> bool:
    return annotations_of(claim).get(names.OWNER_ANNOTATION) == _run_owner(identity)


def _run_owner(identity: Identity) -> str:
    return f"{identity.owner}/{identity.run}"


def set_claim_owner(cluster: Cluster, workspace: Workspace, identity: Identity, trainjob: Obj) -> None:
    """With `retain` = delete: add the TrainJob to the owners of the claim, which is deleted with the last of them. Idempotent.

    A claim that this run did not create is left unchanged. If the owner cannot be set, there is a warning.
    """
    if workspace.new is None or workspace.new.retain == "keep":
        return
    reference = trainjob_reference(trainjob)

    def owners(claim: Obj) -> list[Obj] | None:
        if not _is_created_by(claim, identity) or any(owner["uid"] == reference["uid"] for owner in owners_of(claim)):
            return None
        return [*owners_of(claim), reference]

    try:
        set_owners(cluster, CLAIM, workspace.claim, namespace_of(trainjob), owners)
    except ApiError as error:
        _warn(workspace, f"will not be deleted with TrainJob {name_of(trainjob)}: {error.message}")


def claim_manifest(workspace: Workspace, new: NewClaim, identity: Identity, namespace: str, nodes: int) -> Obj:
    """Return the claim of a workspace for a job with so many nodes. Pure."""
    access = new.access or (_FOR_SEVERAL if nodes > 1 else _FOR_ONE_NODE[0])
    spec: Obj = {"accessModes": [access], "resources": {"requests": {"storage": new.size}}}
    if new.storage_class:
        spec["storageClassName"] = new.storage_class
    metadata = {
        "name": workspace.claim,
        "namespace": namespace,
        "labels": {names.MANAGED_BY_LABEL: "trainwright", names.RUN_LABEL: label_value(identity.run)},
        "annotations": {names.OWNER_ANNOTATION: _run_owner(identity)},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def path_of_steps(cluster: Cluster, claim: str, namespace: str, workspace_path: str) -> str:
    """Return where the steps of a run have a claim: its folder on this machine, unless they mount it at another path than `MOUNT`."""
    return (claim_folder(cluster, claim, namespace) if workspace_path in ("", MOUNT) else "") or workspace_path


def claim_folder(cluster: Cluster, claim: str, namespace: str) -> str:
    """Return the claim's folder if the cluster is an embedded one of this machine, and this is not a pod; else an empty string.

    A pod has the claim at `MOUNT`. A machine may have a folder of this name, too, which is something else.
    """
    try:
        if not JobsClient.of(cluster).is_embedded():
            return ""
        deadline = time.monotonic() + _FOLDER_SECONDS
        while not (folder := annotations_of(cluster.get(CLAIM, claim, namespace)).get(names.HOST_PATH_ANNOTATION, "")):
            if time.monotonic() > deadline:
                return ""
            time.sleep(_FOLDER_POLL_SECONDS)
        return folder if Path(folder).is_dir() and not (Path(MOUNT).is_dir() and Path(MOUNT).samefile(folder)) else ""
    except (Forbidden, NotFound, PermissionError):
        return ""
