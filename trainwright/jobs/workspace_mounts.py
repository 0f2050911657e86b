"""Where a workspace is mounted in a job: the run's own folder at /workspace, prepared datasets and models read-only below it. Pure.

A run cannot reach what another one writes: the mount is the boundary.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.jobs.request import TrainRequest
from trainwright.jobs.run_folder import Kind, prepared_folder
from trainwright.jobs.training_steps import (
    initializer_container,
    pod_spec_of,
    replicated_jobs,
    step_of_job,
    training_jobs,
)
from trainwright.jobs.workspace import Workspace

PATCH_MANAGER = "trainwright.dev/workspace"
MOUNT = "/workspace"
SHARED_MOUNT = "/trainwright/workspace"
"""Where an initializer of ours sees the whole workspace, to share what it prepares."""
_PREPARED_VOLUME, _SHARED_VOLUME = "prepared-", "shared-workspace"
"""The same claim again: a patch of a container takes one mount of each volume."""
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


def workspace_patch(request: TrainRequest, runtime: Obj, folder: str) -> Obj:
    """The patch that puts the claim in the place of the runtime's volume `initializer`, in every container that mounts it.

    The volume merges by name and the mount by its path, so the runtime's own claim and folder are replaced. In a runtime that
    mounts no such volume the training containers get it at /workspace.
    """
    workspace = Workspace.parse(request.workspace)
    mounting = {job["name"] for job in replicated_jobs(runtime) if _mounts(job)}
    training = {job["name"] for job in training_jobs(runtime)}
    jobs = []
    for job in replicated_jobs(runtime):
        containers: dict[str, list[Obj]] = {}
        for group in ("initContainers", "containers"):
            entries = [
                {"name": container["name"], "volumeMounts": mounts}
                for container in pod_spec_of(job).get(group) or []
                if (mounts := list(_mounts_of(container, job, request, runtime, workspace, folder, mounting, training)))
            ]
            if entries:
                containers[group] = entries
        if containers:
            used = {mount["name"] for group in containers.values() for entry in group for mount in entry["volumeMounts"]}
            source = {"persistentVolumeClaim": {"claimName": workspace.claim}}
            pod = {**containers, "volumes": [{"name": name, **source} for name in sorted(used)]}
            jobs.append({"name": job["name"], "template": {"spec": {"template": {"spec": pod}}}})
    return {"manager": PATCH_MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def workspace_problems(runtime: Obj) -> Iterator[str]:
    """Why a workspace cannot be mounted, in words."""
    if not any(_mounts(job) for job in replicated_jobs(runtime)) and not any(True for _ in training_jobs(runtime)):
        yield f"no step of the runtime mounts the volume {names.INITIALIZER_VOLUME!r}, or has a container {names.NODE!r} to mount it"


def _mounts_of(
    container: Obj,
    job: Obj,
    request: TrainRequest,
    runtime: Obj,
    workspace: Workspace,
    folder: str,
    mounting: set[str],
    training: set[str],
) -> Iterator[Obj]:
    own = [mount for mount in container.get("volumeMounts") or [] if mount["name"] == names.INITIALIZER_VOLUME]
    if own:
        path, key = own[0]["mountPath"].rstrip("/"), "subPathExpr" if "subPathExpr" in own[0] else "subPath"
        yield {"name": names.INITIALIZER_VOLUME, "mountPath": own[0]["mountPath"], key: _below(workspace, folder)}
    elif not mounting and job["name"] in training and container["name"] == names.NODE:
        path = MOUNT
        yield {"name": names.INITIALIZER_VOLUME, "mountPath": MOUNT, "subPath": _below(workspace, folder)}
    else:
        return
    inputs = mounted_inputs(request, runtime)
    for kind, digest in inputs.items():
        place = _below(workspace, prepared_folder(kind, digest))
        yield {"name": _PREPARED_VOLUME + kind, "mountPath": f"{path}/{kind}", "subPath": place, "readOnly": True}
    shares = any(step_of_job(job) == ancestor and kind not in inputs for kind, ancestor in _KINDS.items())
    if shares and _is_ours(container):
        whole = {"subPath": workspace.path} if workspace.path else {}
        yield {"name": _SHARED_VOLUME, "mountPath": SHARED_MOUNT, **whole}


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
