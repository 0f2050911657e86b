"""The patches by which a request changes the pods of its runtime, and how they mount claims. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.jobs.request.workspace import Workspace, is_claim_of


def runtime_patch(manager: str, pods: Mapping[str, Obj]) -> Obj:
    """Return an entry of `spec.runtimePatches` by this manager, with a patch of the pod spec for each replicated job by its name."""
    jobs = [{"name": job, "template": {"spec": {"template": {"spec": pod}}}} for job, pod in pods.items()]
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def claim_volume(name: str, claim: str, workspace: Workspace | None, *, read_only: bool = False) -> tuple[str, Obj]:
    """Return the name of the volume by which a pod mounts a claim, and what its pod spec needs besides: nothing for the workspace's.

    Any other claim gets a volume of that `name`.
    """
    if is_claim_of(workspace, claim):
        return names.INITIALIZER_VOLUME, {}
    source: Obj = {"claimName": claim, **({"readOnly": True} if read_only else {})}
    return name, {"volumes": [{"name": name, "persistentVolumeClaim": source}]}
