"""Applies `spec.runtimePatches` of a TrainJob to its runtime's template, by strategic merge, in list order."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, named
from trainwright.api.patching.strategic_merge import strategic_merge
from trainwright.api.schema.published import struct_named
from trainwright.materialize.compiled_runtime import CompiledRuntime
from trainwright.materialize.go_serialization import quantity_problems, serialize
from trainwright.materialize.go_types import JOBSET_SPEC, PATCH_SPEC


def apply_patches(trainjob: Obj, compiled: CompiledRuntime) -> tuple[Obj, dict[str, str], dict[str, str]]:
    """Return the runtime's JobSet spec with all patches, and the JobSet's labels and annotations.

    Labels and annotations of the TrainJob's metadata are not propagated (Trainer 2.2 and later).
    """
    metadata = ((compiled.runtime.get("spec") or {}).get("template") or {}).get("metadata") or {}
    spec = compiled.template()
    labels, annotations = dict(metadata.get("labels") or {}), dict(metadata.get("annotations") or {})
    patches = trainjob["spec"].get("runtimePatches") or []
    if not patches:
        return spec, labels, annotations
    order = {job["name"]: index for index, job in enumerate(spec.get("replicatedJobs") or [])}
    for patch in patches:
        patched = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
        labels |= (patched.get("metadata") or {}).get("labels") or {}
        annotations |= (patched.get("metadata") or {}).get("annotations") or {}
        if patched.get("spec"):
            merged = strategic_merge(spec, serialize(PATCH_SPEC, patched["spec"], complete=False), struct_named("JobSetSpec"))
            spec = serialize(JOBSET_SPEC, merged)
    if spec.get("replicatedJobs"):
        spec["replicatedJobs"] = sorted(spec["replicatedJobs"], key=lambda job: order.get(job["name"], 0))
    return spec, labels, annotations


def patch_problems(trainjob: Obj, runtime: Obj) -> Iterator[Problem]:
    """Yield patch targets that the runtime does not have, and variables where they are not allowed (rules 12 to 14).

    Checked against the runtime without patches: upstream checks the merged template, and so admits typos.
    """
    for patch in trainjob["spec"].get("runtimePatches") or []:
        yield from _patch_problems(patch, runtime)
        patched = ((patch.get("trainingRuntimeSpec") or {}).get("template") or {}).get("spec") or {}
        yield from quantity_problems(PATCH_SPEC, patched, "spec.runtimePatches.trainingRuntimeSpec.template.spec")


def _patch_problems(patch: Obj, runtime: Obj) -> Iterator[Problem]:
    where = "spec.runtimePatches"
    template = ((runtime.get("spec") or {}).get("template") or {}).get("spec") or {}
    patched = ((patch.get("trainingRuntimeSpec") or {}).get("template") or {}).get("spec") or {}
    for job in patched.get("replicatedJobs") or []:
        target = named(template.get("replicatedJobs"), job["name"])
        if target is None:
            known = ", ".join(j["name"] for j in template.get("replicatedJobs") or [])
            yield Problem(
                where,
                f"Invalid value: must not have targetJob that doesn't exist in the runtime: {job['name']!r}; it has {known}",
            )
            continue
        pod_spec = target["template"]["spec"]["template"]["spec"]
        known_names = {c["name"] for group in ("initContainers", "containers") for c in pod_spec.get(group) or []}
        pod_patch = (((job.get("template") or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
        for group in ("initContainers", "containers"):
            for container in pod_patch.get(group) or []:
                if container["name"] not in known_names:
                    listed = ", ".join(sorted(known_names))
                    yield Problem(
                        where, f"Invalid value: no container {container['name']!r} in the job {job['name']!r}; it has {listed}"
                    )
                if group == "containers" and container.get("env") and container["name"] in names.CONTAINER_OF_ANCESTOR.values():
                    yield Problem(
                        where,
                        f"Invalid value: must not have envs for the {container['name']} container; use the TrainJob's own env",
                    )
