"""The snapshot of a runtime in a ConfigMap, taken when its TrainJob is first built, so that later changes do not affect the job.

Source: Trainer 2.3 (reference section 2.2).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

from trainwright.api import names
from trainwright.api.admission.admit import admit
from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, is_controlled_by, name_of, namespace_of, owner_reference
from trainwright.materialize.go_serialization import serialize
from trainwright.materialize.go_types import RUNTIME
from trainwright.text.text_input import Unreadable
from trainwright.text.yaml_writer import to_yaml

KEY = "runtime"
_CACHE_SIZE = 64
"""Conversions to and from YAML are cached: they take milliseconds, and all jobs of a runtime have the same snapshot."""
_LARGEST_CACHED = 64 * 1024
"""Characters or bytes of the largest snapshot that is cached: one can have megabytes."""
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
