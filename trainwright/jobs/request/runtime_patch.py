"""The patches by which a request changes the pods of its runtime, and how they mount claims. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.jobs.request.workspace import Workspace


def runtime_patch(manager: str, pods: Mapping[str, Obj]) -> Obj:
    """Return an entry of `spec.runtimePatches` by this manager, with a patch of the pod spec for each replicated job by its name."""
    jobs = [{"name": job, "template": {"spec": {"template": {"spec": pod}}}} for job, pod in pods.items()]
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def claim_of_volume(volume: Obj) -> str:
    """Return the claim of a volume, an empty string if it is of another type."""
    return str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "")


def is_claim_of(workspace: Workspace | None, claim: str) -> bool:
    """Whether a claim is that of the workspace, and so has to be mounted through the workspace's volume `initializer`.

    Kubelets up to Kubernetes 1.34 never start a pod with two volumes of one claim (kubernetes/kubernetes#122140).
    """
    return workspace is not None and workspace.claim == claim


def claim_volume(name: str, claim: str, workspace: Workspace | None, *, read_only: bool = False) -> tuple[str, Obj]:
    """Return the name of the volume by which a pod mounts a claim, and what its pod spec needs besides: nothing for the workspace's.

    Any other claim gets a volume of that `name`.
    """
    if is_claim_of(workspace, claim):
        return names.INITIALIZER_VOLUME, {}
    source: Obj = {"claimName": claim, **({"readOnly": True} if read_only else {})}
    return name, {"volumes": [{"name": name, "persistentVolumeClaim": source}]}
