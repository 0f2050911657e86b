"""The first step of a run: its name, and its workspace, made where it does not exist. Everything after it mounts that."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.errors import Forbidden, NotFound
from trainwright.api.kinds import CLAIM
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.errors import WorkspaceUnfit
from trainwright.jobs.identity import Identity
from trainwright.jobs.workspace import Workspace
from trainwright.jobs.workspace_claim import ensure_claim

STEP = "start"


@dataclass(frozen=True)
class StartedRun:
    """`claim` is mounted by the steps, `workspace` is the same as the TrainJobs name it, `path` where the steps find it."""

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
    workspace_path: str = "/workspace",
    num_nodes: int = 1,
) -> StartedRun:
    """See to it that the workspace of a run exists: `pvc://CLAIM[/FOLDER]`, the bare name of a claim, or with `?size=...` one to
    be created, which `num_nodes` nodes are to share.

    Repeatable: a claim that an earlier try has made is found. `workspace_path` is where the steps mount the claim.
    Raises ValueError (bad workspace), WorkspaceUnfit (the claim does not exist and is not to be made, or is another's), ApiError.
    """
    chosen = Workspace.parse(workspace if "://" in workspace else f"pvc://{workspace}")
    if chosen.new is None:
        _check_exists(cluster, chosen, namespace)
    ensure_claim(cluster, chosen, Identity(owner, run_id, STEP), namespace, num_nodes)
    below = f"/{chosen.path}" if chosen.path else ""
    return StartedRun(run_id, chosen.claim, _for_jobs(workspace, chosen, below), f"{workspace_path.rstrip('/')}{below}")


def _for_jobs(given: str, chosen: Workspace, below: str) -> str:
    """How the TrainJobs name it: only those of a claim that goes with them have to know how it was made."""
    goes = chosen.new is not None and chosen.new.retain == "delete"
    return f"pvc://{chosen.claim}{below}" + (f"?{given.partition('?')[2]}" if goes else "")


def _check_exists(cluster: Cluster, workspace: Workspace, namespace: str) -> None:
    """A step that mounts a claim which does not exist waits for ever."""
    try:
        cluster.get(CLAIM, workspace.claim, namespace)
    except NotFound:
        raise WorkspaceUnfit(
            f"workspace: the claim {workspace.claim!r} does not exist in {namespace}; create it, or have it created with "
            f"pvc://{workspace.claim}?size=20Gi"
        ) from None
    except Forbidden:  # who may not look finds out when the steps start
        return
