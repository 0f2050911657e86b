"""The template of a runtime: admitted, serialized like Kubernetes' Go types, patched by the TrainJob, and kept in a ConfigMap.

`spec.runtimePatches` are applied by strategic merge, in list order. The snapshot is taken when a TrainJob is first built, so that
later changes of the runtime do not affect the job. Source: Trainer 2.3 (reference section 2.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from trainwright.api import names
from trainwright.api.admission.admit import admit
from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, is_controlled_by, name_of, named, namespace_of, owner_reference
from trainwright.api.patching.strategic_merge import strategic_merge
from trainwright.api.schema.published import struct_named
from trainwright.materialize.go_serialization import JOBSET_SPEC, PATCH_SPEC, RUNTIME, quantity_problems, serialize
from trainwright.text.text_input import Unreadable
from trainwright.text.yaml_writer import to_yaml

_CACHE_SIZE = 64
"""A cluster has a few dozen runtimes; a compiled one takes a few kilobytes. Conversions to and from YAML, of the snapshot that all
jobs of a runtime share, take milliseconds, too."""
_LARGEST_CACHED = 64 * 1024
"""Bytes or characters of the largest runtime or snapshot that is cached: one can have megabytes."""


@dataclass(frozen=True)
class CompiledRuntime:
    """A compiled runtime, shared between calls: `runtime` must not be modified, and `template` returns copies."""

    runtime: Obj
    _template: bytes

    def template(self) -> Obj:
        """Return a copy of the runtime's JobSet spec."""
        copied: Obj = orjson.loads(self._template)
        return copied


def compile_runtime(runtime: Obj) -> CompiledRuntime:
    """Compile a runtime. Raises Invalid if it is not admitted."""
    content = orjson.dumps(runtime, option=orjson.OPT_SORT_KEYS)
    return _compile_cached(content) if len(content) <= _LARGEST_CACHED else _compile(content)


@lru_cache(maxsize=_CACHE_SIZE)
def _compile_cached(content: bytes) -> CompiledRuntime:
    return _compile(content)


def _compile(content: bytes) -> CompiledRuntime:
    loaded: Any = orjson.loads(content)
    runtime = admit(loaded).object
    spec = ((runtime.get("spec") or {}).get("template") or {}).get("spec") or {}
    if found := list(quantity_problems(JOBSET_SPEC, spec, "spec.template.spec")):
        raise Invalid.of(runtime["kind"], name_of(runtime), found, "trainer.kubeflow.org")
    return CompiledRuntime(runtime, orjson.dumps(serialize(JOBSET_SPEC, spec)))


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


KEY = "runtime"
_KINDS = ("TrainingRuntime", "ClusterTrainingRuntime")


def snapshot_name(trainjob: Obj) -> str:
    return f"{name_of(trainjob)}{names.SNAPSHOT_SUFFIX}"


def build_snapshot(trainjob: Obj, runtime: Obj) -> Obj:
    """Return the ConfigMap with a runtime's snapshot, owned by the TrainJob. The runtime may be with or without defaults."""
    serialized = serialize(RUNTIME, admit(runtime).object)
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": trainjob["metadata"]}
    metadata = {
        "name": snapshot_name(trainjob),
        "namespace": namespace_of(trainjob) or "default",
        "ownerReferences": [owner_reference(owner)],
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {KEY: _cached(_as_yaml, orjson.dumps(serialized))},
    }


@lru_cache(_CACHE_SIZE)
def _as_yaml(data: bytes) -> str:
    return to_yaml(orjson.loads(data), sort_keys=True)


def _cached(convert: Any, content: bytes | str) -> Any:
    """Call a cached conversion; a large content, of which there can be megabytes, does not enter its cache."""
    return convert(content) if len(content) <= _LARGEST_CACHED else convert.__wrapped__(content)


def load_snapshot(snapshot: Obj, trainjob: Obj) -> Obj:
    """Return the runtime in a snapshot.

    Raises Invalid if the ConfigMap belongs to another object, contains no runtime, or one that the TrainJob does not refer to.
    The current runtime cannot be used instead, because it may differ from the one that the job was built from.
    """
    if not is_controlled_by(snapshot, trainjob):
        raise _invalid(trainjob, "it belongs to another object")
    text = (snapshot.get("data") or {}).get(KEY)
    if text is None:
        raise _invalid(trainjob, f"it has no key {KEY!r}")
    runtime, reference = _loaded(text, trainjob), trainjob["spec"]["runtimeRef"]
    group = str(runtime.get("apiVersion", "")).partition("/")[0]
    for actual, expected in (
        (runtime.get("kind"), reference.get("kind") or "ClusterTrainingRuntime"),
        (group, reference.get("apiGroup") or "trainer.kubeflow.org"),
        (name_of(runtime), reference["name"]),
    ):
        if actual != expected:
            raise _invalid(trainjob, f"it contains {actual!r}, but the TrainJob refers to {expected!r}")
    return runtime


def _loaded(text: str, trainjob: Obj) -> Obj:
    try:
        runtime: Any = orjson.loads(_cached(_as_json, text))
    except Unreadable as error:
        raise _invalid(trainjob, f"it is not valid YAML: {error}") from None
    if not isinstance(runtime, dict) or runtime.get("kind") not in _KINDS:
        raise _invalid(trainjob, "it contains no runtime")
    return runtime


@lru_cache(_CACHE_SIZE)
def _as_json(text: str) -> bytes:
    from trainwright.text.yaml_reader import read_yaml  # imports PyYAML

    return orjson.dumps(next(iter(read_yaml(text)), None))


def _invalid(trainjob: Obj, reason: str) -> Invalid:
    message = f"invalid runtime snapshot: ConfigMap {snapshot_name(trainjob)!r}: {reason}"
    return Invalid(message, problems=[Problem("spec.runtimeRef", message)])
