"""Where a workspace is mounted in a job: the run's own folder at /workspace, prepared datasets and models read-only below it. Pure.

A run cannot reach what another one writes: the mount is the boundary.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.objects import Obj, name_of
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.training_steps import (
    initializer_container,
    pod_spec_of,
    replicated_jobs,
    step_of_job,
    training_jobs,
)
from trainwright.jobs.request.workspace import Workspace
from trainwright.jobs.state.run_folder import Kind, prepared_folder

PATCH_MANAGER = "trainwright.dev/workspace"
MOUNT = "/workspace"
SHARED_MOUNT = "/trainwright/workspace"
"""Where an initializer of ours sees the whole workspace, to share what it prepares."""
_RUN, _SHARED = "", "-shared"
_PARTS = (_RUN, "-dataset", "-model", _SHARED)
"""What is mounted of a workspace, as the ends of the names of the patches that say so."""
_OURS = "trainwright.initializers"
_KINDS: dict[Kind, str] = {"dataset": names.ANCESTOR_DATASET, "model": names.ANCESTOR_MODEL}


def mounted_inputs(request: TrainRequest, runtime: Obj) -> dict[Kind, str]:
    """Kind (`dataset`, `model`) to digest of the prepared inputs that the job finds on the workspace.

    None of a kind whose initializer in the runtime is somebody else's: that one fetches for itself, into the run's folder.
    """
    if not request.workspace:
        return {}
    digests: dict[Kind, str] = {"dataset": request.dataset_digest, "model": request.model_digest}
    return {kind: digest for kind, digest in digests.items() if digest and not _is_foreign(runtime, kind)}


def initializer_variables(request: TrainRequest, runtime: Obj, kind: Kind, folder: str) -> list[Obj]:
    """What an initializer of ours is told: the digest of what is there already, or where to share what it prepares."""
    container = initializer_container(runtime, _KINDS[kind])
    if not request.workspace or container is None or not _is_ours(container):
        return []
    if digest := mounted_inputs(request, runtime).get(kind):
        return [{"name": digest_variable(kind), "value": digest}]
    return [
        {"name": names.SHARED_VARIABLE, "value": SHARED_MOUNT},
        {"name": names.RUN_FOLDER_VARIABLE, "value": folder},
    ]


def digest_variable(kind: Kind) -> str:
    return names.DATASET_DIGEST_VARIABLE if kind == "dataset" else names.MODEL_DIGEST_VARIABLE


def folder_uri(workspace: Workspace, folder: str) -> str:
    """The folder that a job writes to, as a URI: no two runs have the same."""
    return f"pvc://{workspace.claim}/{_below(workspace, folder)}"


def workspace_patches(request: TrainRequest, workspace: Workspace, runtime: Obj, folder: str) -> Iterator[Obj]:
    """The patches that put the claim in the place of the runtime's volume `initializer`, in every container that mounts it.

    The volume merges by name and a mount by its path, so the runtime's own claim and folder are replaced. In a runtime that
    mounts no such volume the training containers get it at /workspace. All mounts are of that one volume: kubelets until
    Kubernetes 1.34 never start a pod that has two volumes of one claim (kubernetes/kubernetes#122140). Since a patch of a
    container takes one mount of each volume, each mount is in a patch of its own.
    """
    volume = {"name": names.INITIALIZER_VOLUME, "persistentVolumeClaim": {"claimName": workspace.claim}}
    for part in _PARTS:
        jobs = []
        for job in replicated_jobs(runtime):
            containers = _mounting(part, job, request, runtime, workspace, folder)
            if containers:
                pod = {**containers, **({"volumes": [volume]} if part == _RUN else {})}
                jobs.append({"name": job["name"], "template": {"spec": {"template": {"spec": pod}}}})
        if jobs:
            spec = {"template": {"spec": {"replicatedJobs": jobs}}}
            yield {"manager": f"{PATCH_MANAGER}{part}", "trainingRuntimeSpec": spec}


def workspace_problems(runtime: Obj) -> Iterator[str]:
    """Why a workspace cannot be mounted, in words."""
    policies = runtime["spec"]["template"]["spec"].get("volumeClaimPolicies") or []
    if any(name_of(template) == names.INITIALIZER_VOLUME for policy in policies for template in policy.get("templates") or []):
        yield (
            f"the runtime makes a claim of its own for each job (volumeClaimPolicies), which JobSet lets no other volume replace; "
            f"leave workspace out, or take a runtime whose volume {names.INITIALIZER_VOLUME!r} names a claim"
        )
    if not any(_mounts(job) for job in replicated_jobs(runtime)) and not any(True for _ in training_jobs(runtime)):
        yield f"no step of the runtime mounts the volume {names.INITIALIZER_VOLUME!r}, or has a container {names.NODE!r} to mount it"


def _mounting(part: str, job: Obj, request: TrainRequest, runtime: Obj, workspace: Workspace, folder: str) -> Obj:
    """The containers of a step that have this mount, as a patch of its pods."""
    groups: dict[str, list[Obj]] = {}
    for group in ("initContainers", "containers"):
        for container in pod_spec_of(job).get(group) or []:
            mount = _mounts_of(container, job, request, runtime, workspace, folder).get(part)
            if mount is not None:
                groups.setdefault(group, []).append({"name": container["name"], "volumeMounts": [mount]})
    return groups


def _mounts_of(
    container: Obj, job: Obj, request: TrainRequest, runtime: Obj, workspace: Workspace, folder: str
) -> dict[str, Obj]:
    """Which mounts a container has, by the part of the workspace that they show."""
    own = [mount for mount in container.get("volumeMounts") or [] if mount["name"] == names.INITIALIZER_VOLUME]
    if own:
        path, key = own[0]["mountPath"], "subPathExpr" if "subPathExpr" in own[0] else "subPath"
    elif container["name"] == names.NODE and job in training_jobs(runtime) and not any(map(_mounts, replicated_jobs(runtime))):
        path, key = MOUNT, "subPath"
    else:
        return {}
    mounts: dict[str, Obj] = {_RUN: {"mountPath": path, key: _below(workspace, folder)}}
    inputs = mounted_inputs(request, runtime)
    for kind, digest in inputs.items():
        place = _below(workspace, prepared_folder(kind, digest))
        mounts[f"-{kind}"] = {"mountPath": f"{path.rstrip('/')}/{kind}", "subPath": place, "readOnly": True}
    shares = any(step_of_job(job) == ancestor and kind not in inputs for kind, ancestor in _KINDS.items())
    if shares and _is_ours(container):
        mounts[_SHARED] = {"mountPath": SHARED_MOUNT, **({"subPath": workspace.path} if workspace.path else {})}
    return {part: {"name": names.INITIALIZER_VOLUME, **mount} for part, mount in mounts.items()}


def _below(workspace: Workspace, folder: str) -> str:
    return f"{workspace.path}/{folder}" if workspace.path else folder


def _mounts(job: Obj) -> bool:
    pod = pod_spec_of(job)
    containers = [*(pod.get("initContainers") or []), *(pod.get("containers") or [])]
    return any(mount["name"] == names.INITIALIZER_VOLUME for entry in containers for mount in entry.get("volumeMounts") or [])


def _is_foreign(runtime: Obj, kind: Kind) -> bool:
    container = initializer_container(runtime, _KINDS[kind])
    return container is not None and not _is_ours(container)


def _is_ours(container: Obj) -> bool:
    return any(_OURS in word for word in (*(container.get("command") or ()), *(container.get("args") or ())))
