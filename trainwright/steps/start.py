"""The first step of a run: ensures that its workspace exists, which all later steps mount."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.errors import Forbidden, NotFound
from trainwright.api.kinds import CLAIM
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.errors import WorkspaceMismatch
from trainwright.jobs.request.workspace import Workspace
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.submit.workspace_claim import MOUNT, ensure_claim, path_of_steps
from trainwright.steps.on_cluster import check_target
from trainwright.steps.training.own_step import warn_without_guard
from trainwright.storage.open import check_mounted
from trainwright.submission import JobsClient

STEP = "start"


@dataclass(frozen=True)
class StartedRun:
    """`claim` is the claim that steps mount, `workspace` the setting for TrainJobs, `path` the folder in the steps, empty if
    they do not mount it.
    """

    run_id: str
    claim: str
    workspace: str
    path: str


def start_run(
    cluster: Cluster,
    workspace: str,
    *,
    owner: str,
    run_id: str,
    namespace: str,
    workspace_path: str = MOUNT,
    num_nodes: int = 1,
) -> StartedRun:
    """Ensure that the workspace of a run exists: `pvc://CLAIM[/FOLDER]`, the bare name of a claim, or with `?size=...` a claim
    to create, for `num_nodes` nodes.

    Idempotent: the claim of an earlier attempt is reused. `workspace_path` is where the steps mount the claim, empty if they do not.
    Steps beside an embedded cluster mount nothing: unless another path is given, they get the claim's folder on this machine.
    Raises ValueError (bad workspace), WorkspaceUnfit (the claim does not exist and is not to be made, or is another's), ApiError.
    """
    chosen = workspace_of(workspace)
    if chosen.new is None:
        _check_exists(cluster, chosen, namespace)
    ensure_claim(cluster, chosen, Identity(owner, run_id, STEP), namespace, num_nodes)
    workspace_path = path_of_steps(cluster, chosen.claim, namespace, workspace_path)
    below = f"/{chosen.path}" if chosen.path else ""
    path = f"{workspace_path.rstrip('/')}{below}" if workspace_path else ""
    if owner == "kfp":  # every triggerer of Airflow searches for the jobs of its tasks
        warn_without_guard(JobsClient.of(cluster), namespace)
    return StartedRun(run_id, chosen.claim, _for_jobs(workspace, chosen, below), path)


def check_exports(export_uri: str, *, pods_mount: str = "", needed_here: bool = False) -> None:
    """Refuse a folder of exports that a later step would not see, before anything is trained for it. An empty one is not checked.

    Args:
        export_uri: The folder of all exports.
        pods_mount: Where the pods of the later steps mount the workspace; empty if these are done where this one is.
        needed_here: Whether some of the later steps are done where this one is in any event: a registration, retention.

    Raises ValueError for a folder of a pod, NotMounted, BadUri.
    """
    if export_uri and pods_mount:
        check_target(export_uri, pods_mount)
    if export_uri and (needed_here or not pods_mount):
        check_mounted(export_uri)


def workspace_of(text: str) -> Workspace:
    """Return the workspace of a run, given as a URI or as the bare name of a claim. Raises ValueError."""
    return Workspace.parse(text if "://" in text else f"pvc://{text}")


def _for_jobs(given: str, chosen: Workspace, below: str) -> str:
    """Return the workspace setting for TrainJobs. The query is kept only for a claim that is deleted with its TrainJob."""
    is_deleted_with_job = chosen.new is not None and chosen.new.retain == "delete"
    return f"pvc://{chosen.claim}{below}" + (f"?{given.partition('?')[2]}" if is_deleted_with_job else "")


def _check_exists(cluster: Cluster, workspace: Workspace, namespace: str) -> None:
    """Fail early, since a step that mounts a missing claim waits forever."""
    try:
        cluster.get(CLAIM, workspace.claim, namespace)
    except NotFound:
        raise WorkspaceMismatch(
            f"workspace: the claim {workspace.claim!r} does not exist in {namespace}; create it, or let it be created with "
            f"pvc://{workspace.claim}?size=20Gi"
        ) from None
    except Forbidden:  # without permission to read claims, a missing one shows when the steps start
        return
