"""Mounts a workspace in a job: the run's folder at /workspace, and prepared datasets and models read-only below it. Pure.

Only the run's own folder is mounted, so that a run cannot access the files of another.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.objects import Obj, name_of
from trainwright.jobs.manifest.resolved_request import (
    ANCESTOR_OF_KIND,
    ResolvedRequest,
    initializer_container,
    pod_spec_of,
    replicated_jobs,
    step_of_job,
    training_jobs,
)
from trainwright.jobs.manifest.runtime_patch import runtime_patch
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.workspace import Workspace
from trainwright.jobs.state.run_folder import Kind, prepared_folder

PATCH_MANAGER = "trainwright.dev/workspace"
MOUNT = "/workspace"
SHARED_MOUNT = "/trainwright-workspace"
"""Where Trainwright's initializers mount the whole workspace, to store prepared data for other runs.

Never below `/trainwright`: in a container that starts in `/`, Python would take that folder for the package.
"""
_RUN, _SHARED = "", "-shared"
_PARTS = (_RUN, "-dataset", "-model", _SHARED)
"""The mounts of a workspace, as suffixes of the managers of their patches."""
_OWN_MODULE = "trainwright.initializers"


def mounted_inputs(request: TrainRequest, runtime: Obj) -> dict[Kind, str]:
    """Return the digests of the prepared inputs that are mounted from the workspace, by kind (`dataset`, `model`).

    Omits kinds for which the runtime has a third-party initializer: it downloads the input itself, into the run's folder.
    """
    if not request.workspace:
        return {}
    digests: dict[Kind, str] = {"dataset": request.dataset_digest, "model": request.model_digest}
    return {kind: digest for kind, digest in digests.items() if digest and not _is_third_party(runtime, kind)}


def initializer_variables(resolved: ResolvedRequest, kind: Kind, folder: str) -> list[Obj]:
    """Return the variables of Trainwright's initializers: the digest of a mounted input, or where to store a prepared one."""
    container = initializer_container(resolved.runtime, ANCESTOR_OF_KIND[kind])
    if not resolved.request.workspace or container is None or not is_own_initializer(container):
        return []
    if digest := resolved.inputs.get(kind):
        return [{"name": digest_variable(kind), "value": digest}]
    return [
        {"name": names.SHARED_VARIABLE, "value": SHARED_MOUNT},
        {"name": names.RUN_FOLDER_VARIABLE, "value": folder},
    ]


def digest_variable(kind: Kind) -> str:
    return names.DATASET_DIGEST_VARIABLE if kind == "dataset" else names.MODEL_DIGEST_VARIABLE


def folder_uri(workspace: Workspace, folder: str) -> str:
    """Return the URI of the folder that a job writes to; unique for each run."""
    return f"pvc://{workspace.claim}/{_path_on_claim(workspace, folder)}"


def workspace_patches(resolved: ResolvedRequest, workspace: Workspace, folder: str) -> Iterator[Obj]:
    """Yield the patches that replace the runtime's volume `initializer` by the claim, in every container that mounts it.

    Volumes merge by name and mounts by path, so that the runtime's claim and folder are replaced. If the runtime does not
    mount this volume, training containers get it at /workspace. All mounts use this one volume, see `is_claim_of`. Since a
    container patch can have only one mount of each volume, each mount has its own patch.
    """
    volume = {"name": names.INITIALIZER_VOLUME, "persistentVolumeClaim": {"claimName": workspace.claim}}
    for part in _PARTS:
        pods: dict[str, Obj] = {}
        for job in replicated_jobs(resolved.runtime):
            containers = _containers_with_mount(part, job, resolved, workspace, folder)
            if containers:
                pods[job["name"]] = {**containers, **({"volumes": [volume]} if part == _RUN else {})}
        if pods:
            yield runtime_patch(f"{PATCH_MANAGER}{part}", pods)


def workspace_problems(runtime: Obj) -> Iterator[str]:
    """Yield why a workspace cannot be mounted."""
    policies = runtime["spec"]["template"]["spec"].get("volumeClaimPolicies") or []
    if any(name_of(template) == names.INITIALIZER_VOLUME for policy in policies for template in policy.get("templates") or []):
        yield (
            f"the runtime creates its own claim for each job (volumeClaimPolicies), which JobSet does not allow to replace; "
            f"omit workspace, or use a runtime whose volume {names.INITIALIZER_VOLUME!r} references a claim"
        )
    if not any(_mounts(job) for job in replicated_jobs(runtime)) and not any(True for _ in training_jobs(runtime)):
        yield f"no step of the runtime mounts the volume {names.INITIALIZER_VOLUME!r}, or has a container {names.NODE!r}"


def _containers_with_mount(part: str, job: Obj, resolved: ResolvedRequest, workspace: Workspace, folder: str) -> Obj:
    """Return the containers of a step with this mount, as a pod patch."""
    groups: dict[str, list[Obj]] = {}
    for group in ("initContainers", "containers"):
        for container in pod_spec_of(job).get(group) or []:
            mount = _mounts_of(container, job, resolved, workspace, folder).get(part)
            if mount is not None:
                groups.setdefault(group, []).append({"name": container["name"], "volumeMounts": [mount]})
    return groups


def _mounts_of(container: Obj, job: Obj, resolved: ResolvedRequest, workspace: Workspace, folder: str) -> dict[str, Obj]:
    """Return the mounts of a container, by the part of the workspace."""
    runtime, inputs = resolved.runtime, resolved.inputs
    claim_mounts = [mount for mount in container.get("volumeMounts") or [] if mount["name"] == names.INITIALIZER_VOLUME]
    if claim_mounts:
        path, key = claim_mounts[0]["mountPath"], "subPathExpr" if "subPathExpr" in claim_mounts[0] else "subPath"
    elif container["name"] == names.NODE and job in training_jobs(runtime) and not any(map(_mounts, replicated_jobs(runtime))):
        path, key = MOUNT, "subPath"
    else:
        return {}
    mounts: dict[str, Obj] = {_RUN: {"mountPath": path, key: _path_on_claim(workspace, folder)}}
    for kind, digest in inputs.items():
        path_on_claim = _path_on_claim(workspace, prepared_folder(kind, digest))
        mounts[f"-{kind}"] = {"mountPath": f"{path.rstrip('/')}/{kind}", "subPath": path_on_claim, "readOnly": True}
    for kind in _linked_inputs(job, resolved):
        mounts[f"-{kind}"] = {"mountPath": f"{path.rstrip('/')}/{kind}", key: f"{mounts[_RUN][key]}/{kind}", "readOnly": True}
    publishes = any(step_of_job(job) == ancestor and kind not in inputs for kind, ancestor in ANCESTOR_OF_KIND.items())
    if publishes and is_own_initializer(container):
        mounts[_SHARED] = {"mountPath": SHARED_MOUNT, **({"subPath": workspace.path} if workspace.path else {})}
    return {part: {"name": names.INITIALIZER_VOLUME, **mount} for part, mount in mounts.items()}


def _linked_inputs(job: Obj, resolved: ResolvedRequest) -> Iterator[Kind]:
    """Yield the inputs that an initializer of ours has linked into the run's folder when the pods of this step start.

    They are hard links to what other runs read: a pod that may write to its own folder could change them.
    """
    if job not in training_jobs(resolved.runtime):
        return
    complete = {entry["name"] for entry in job.get("dependsOn") or [] if entry.get("status") == "Complete"}
    for kind, ancestor in ANCESTOR_OF_KIND.items():
        container = initializer_container(resolved.runtime, ancestor)
        steps = {entry["name"] for entry in replicated_jobs(resolved.runtime) if step_of_job(entry) == ancestor}
        is_linked = container is not None and kind not in resolved.inputs and is_own_initializer(container)
        if is_linked and _has_source(resolved.request, kind) and steps <= complete:
            yield kind


def _has_source(request: TrainRequest, kind: Kind) -> bool:
    initializer = ((request.manifest or {}).get("spec") or {}).get("initializer") or {}
    return bool(request.source(kind).uri or (initializer.get(kind) or {}).get("storageUri"))


def _path_on_claim(workspace: Workspace, folder: str) -> str:
    return f"{workspace.path}/{folder}" if workspace.path else folder


def _mounts(job: Obj) -> bool:
    pod = pod_spec_of(job)
    containers = [*(pod.get("initContainers") or []), *(pod.get("containers") or [])]
    return any(mount["name"] == names.INITIALIZER_VOLUME for entry in containers for mount in entry.get("volumeMounts") or [])


def _is_third_party(runtime: Obj, kind: Kind) -> bool:
    container = initializer_container(runtime, ANCESTOR_OF_KIND[kind])
    return container is not None and not is_own_initializer(container)


def is_own_initializer(container: Obj) -> bool:
    """Whether an initializer container runs Trainwright's program."""
    return any(_OWN_MODULE in word for word in (*(container.get("command") or ()), *(container.get("args") or ())))
