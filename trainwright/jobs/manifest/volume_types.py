"""Finds volumes that a request would give two types. Pure.

Volumes of a runtime, of patches and of a workspace merge by name, and a merge keeps the types of both. Trainer and JobSet admit the
result; the API server rejects it only when the Job is created, and the TrainJob then waits for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, name_of
from trainwright.jobs.manifest.pod_volumes import volume_patches
from trainwright.jobs.manifest.resolved_request import ResolvedRequest, replicated_jobs
from trainwright.jobs.manifest.workspace_mounts import workspace_patches

_WORKSPACE = "workspace"


@dataclass(frozen=True)
class _Source:
    """What sets volumes: `field` is the field of the request, empty for the runtime; `jobs` are its replicated jobs."""

    field: str
    text: str
    jobs: list[Obj]


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


def _problem(source: _Source, volume: str, job: str, kind: str, other: str, runtime: str) -> Problem:
    own = f"the workspace is a {kind}" if source.field == _WORKSPACE else f"{source.text} has {kind}"
    fix = "omit workspace" if source.field == _WORKSPACE else "give the volume of the patch another name"
    return Problem(
        source.field,
        f"the volume {volume!r} of the job {job!r} would have two types, which no pod can have: {other}, and {own}. Remove the volume "
        f"there or rename it, use another runtime than {runtime!r}, or {fix}",
    )


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
