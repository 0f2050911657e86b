"""Mounts the volumes of a job: its workspace, the volumes that a request names, and packed code; and finds those that would have
two types. Pure.

Of a workspace only the run's own folder is mounted, at /workspace, so that a run cannot access the files of another; prepared
datasets and models are read-only below it. A container patch can have only one mount of each volume, so further mounts of a volume
have patches of their own.

Volumes of a runtime, of patches and of a workspace merge by name, and a merge keeps the types of both. Trainer and JobSet admit the
result; the API server rejects it only when the Job is created, and the TrainJob then waits for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, name_of
from trainwright.jobs.code.code_package import PackedCode
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
from trainwright.jobs.request.workspace import Workspace, claim_of_volume, is_claim_of
from trainwright.jobs.state.run_folder import Kind, prepared_folder

WORKSPACE_MANAGER = "trainwright.dev/workspace"
MOUNT = "/workspace"
SHARED_MOUNT = "/trainwright-workspace"
"""Where Trainwright's initializers mount the whole workspace, to store prepared data for other runs.

Never below `/trainwright`: in a container that starts in `/`, Python would take that folder for the package.
"""
_RUN, _SHARED = "", "-shared"
_PARTS = (_RUN, "-dataset", "-model", _SHARED)
"""The mounts of a workspace, as suffixes of the managers of their patches."""
_OWN_MODULE = "trainwright.initializers"
VOLUMES_MANAGER = "trainwright.dev/volumes"
CODE_MANAGER = "trainwright.dev/code"
CODE_MOUNT = "/trainwright-code"
_VOLUME = "trainwright-code"
_WORKSPACE = "workspace"


def mounted_inputs(request: TrainRequest, runtime: Obj) -> dict[Kind, str]:
    """Return the digests of the prepared inputs that are mounted from the workspace, by kind (`dataset`, `model`).

    Omits kinds for which the runtime has a third-party initializer: it downloads the input itself, into the run's folder.
    """
    if not request.workspace:
        return {}
    digests: dict[Kind, str] = {"dataset": request.dataset_digest, "model": request.model_digest}
    return {kind: digest for kind, digest in digests.items() if digest and not _is_third_party(runtime, kind)}


def _is_third_party(runtime: Obj, kind: Kind) -> bool:
    container = initializer_container(runtime, ANCESTOR_OF_KIND[kind])
    return container is not None and not is_own_initializer(container)


def initializer_variables(resolved: ResolvedRequest, kind: Kind, folder: str) -> list[Obj]:
    """Return the variables of Trainwright's initializers: the digest of a mounted input, or where to store a prepared one."""
    container = initializer_container(resolved.runtime, ANCESTOR_OF_KIND[kind])
    # others read no variables of ours
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


def _path_on_claim(workspace: Workspace, folder: str) -> str:
    return f"{workspace.path}/{folder}" if workspace.path else folder


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
            yield runtime_patch(f"{WORKSPACE_MANAGER}{part}", pods)


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


def _mounts(job: Obj) -> bool:
    pod = pod_spec_of(job)
    containers = [*(pod.get("initContainers") or []), *(pod.get("containers") or [])]
    return any(mount["name"] == names.INITIALIZER_VOLUME for entry in containers for mount in entry.get("volumeMounts") or [])


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


def is_own_initializer(container: Obj) -> bool:
    """Whether an initializer container runs Trainwright's program."""
    return any(_OWN_MODULE in word for word in (*(container.get("command") or ()), *(container.get("args") or ())))


def volume_patches(request: TrainRequest, runtime: Obj) -> Iterator[Obj]:
    """Yield the patches that add the request's volumes to the pods of the training steps, and mount them in their containers."""
    workspace = request.workspace
    renamed = {
        each["name"]: names.INITIALIZER_VOLUME
        for each in request.placement.volumes
        if is_claim_of(workspace, claim_of_volume(each))
    }
    volumes = [volume for volume in request.placement.volumes if volume["name"] not in renamed]
    rounds: list[dict[str, Obj]] = []
    for mount in request.placement.volume_mounts:
        mount = {**mount, "name": renamed.get(mount["name"], mount["name"])}
        free = next((mounts for mounts in rounds if mount["name"] not in mounts), None)
        if free is None:
            rounds.append(free := {})
        free[mount["name"]] = mount
    for number, mounts in enumerate(rounds or ([{}] if volumes else [])):
        pod: Obj = {"containers": [{"name": names.NODE, "volumeMounts": list(mounts.values())}]} if mounts else {}
        if not number and volumes:
            pod["volumes"] = volumes
        manager = f"{VOLUMES_MANAGER}-{number + 1}" if number else VOLUMES_MANAGER
        yield runtime_patch(manager, {job["name"]: pod for job in training_jobs(runtime)})


def code_patch(trainjob: str, code: PackedCode, runtime: Obj) -> Obj:
    """Return the runtime patch that mounts the code in the training containers of the named job."""
    sources = [{"configMap": {"name": name}} for name in config_map_names(trainjob, code)]
    volume = {"name": _VOLUME, "projected": {"sources": sources}}
    mount = {"name": _VOLUME, "mountPath": CODE_MOUNT, "readOnly": True}
    pod = {"volumes": [volume], "containers": [{"name": names.NODE, "volumeMounts": [mount]}]}
    return runtime_patch(CODE_MANAGER, {job["name"]: pod for job in training_jobs(runtime)})


def config_map_names(trainjob: str, code: PackedCode) -> list[str]:
    """Return the names of the ConfigMaps with the code of a job, in the order of its parts."""
    return [f"{trainjob}-code-{code.digest[:8]}-{number}" for number in range(len(code.parts))]


def volume_type_problems(resolved: ResolvedRequest) -> Iterator[Problem]:
    """Yield a problem for each volume that would have two types, at the field of the request that adds the second."""
    seen: dict[tuple[str, str], tuple[str, _Source]] = {}
    reported: set[tuple[str, str]] = set()
    for source in _sources(resolved):
        for job, volume, types in _volumes(source):
            for kind in types:
                first, where = seen.setdefault((job, volume), (kind, source))
                if kind != first and source.field and (source.field, volume) not in reported:
                    reported.add((source.field, volume))
                    yield _problem(source, volume, job, kind, f"{where.text} has {first}", name_of(resolved.runtime))


@dataclass(frozen=True)
class _Source:
    """What sets volumes: `field` is the field of the request, empty for the runtime; `jobs` are its replicated jobs."""

    field: str
    text: str
    jobs: list[Obj]


def _sources(resolved: ResolvedRequest) -> Iterator[_Source]:
    """Yield what sets volumes, in the order in which it is merged."""
    request, runtime = resolved.request, resolved.runtime
    yield _Source("", f"the runtime {name_of(runtime)!r}", replicated_jobs(runtime))
    manifest = (request.manifest or {}).get("spec") or {}
    for index, patch in enumerate(manifest.get("runtimePatches") or []):
        yield _patch_source("manifest", f"spec.runtimePatches[{index}] of the manifest", patch)
    for index, patch in enumerate(request.placement.runtime_patches):
        yield _patch_source("placement.runtime_patches", f"runtime_patches[{index}]", patch)
    for patch in volume_patches(request, runtime):
        yield _patch_source("placement.volumes", "volumes", patch)
    if request.workspace is not None:
        for patch in workspace_patches(resolved, request.workspace, folder=""):
            yield _patch_source(_WORKSPACE, "the workspace", patch)


def _patch_source(field: str, text: str, patch: Obj) -> _Source:
    template = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
    return _Source(field, text, (template.get("spec") or {}).get("replicatedJobs") or [])


def _volumes(source: _Source) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the job, the name and the types of each volume; a volume of a patch may have none."""
    for job in source.jobs:
        pod_template = ((job.get("template") or {}).get("spec") or {}).get("template") or {}
        for volume in (pod_template.get("spec") or {}).get("volumes") or []:
            types = [key for key, value in volume.items() if key != "name" and value is not None]
            yield str(job.get("name")), str(volume.get("name")), types


def _problem(source: _Source, volume: str, job: str, kind: str, other: str, runtime: str) -> Problem:
    own = f"the workspace is a {kind}" if source.field == _WORKSPACE else f"{source.text} has {kind}"
    fix = "omit workspace" if source.field == _WORKSPACE else "give the volume of the patch another name"
    return Problem(
        source.field,
        f"the volume {volume!r} of the job {job!r} would have two types, which no pod can have: {other}, and {own}. Remove the volume "
        f"there or rename it, use another runtime than {runtime!r}, or {fix}",
    )
