"""The runtime as it was when its TrainJob was first built, kept in a ConfigMap: later changes of the runtime do not reach the job.

Source: Trainer 2.3 (reference section 2.2).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

from trainwright.api import names
from trainwright.api.admission import admit
from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, is_controlled_by, name_of, namespace_of, owner_reference
from trainwright.materialize.serialised import as_written
from trainwright.materialize.template_types import RUNTIME

KEY = "runtime"
_REMEMBERED = 64
"""Snapshots whose text is known in both directions: the jobs of a runtime all have the same, and YAML takes milliseconds."""
_KINDS = ("TrainingRuntime", "ClusterTrainingRuntime")


def snapshot_name(trainjob: Obj) -> str:
    return f"{name_of(trainjob)}{names.SNAPSHOT_SUFFIX}"


def runtime_snapshot(trainjob: Obj, runtime: Obj) -> Obj:
    """The ConfigMap that holds a runtime for a TrainJob, owned by it. The runtime may be as it was written or as it is stored."""
    whole = as_written(RUNTIME, admit(runtime).object)
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": trainjob["metadata"]}
    metadata = {
        "name": snapshot_name(trainjob),
        "namespace": namespace_of(trainjob) or "default",
        "ownerReferences": [owner_reference(owner)],
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: _as_yaml(orjson.dumps(whole))}}


@lru_cache(_REMEMBERED)
def _as_yaml(data: bytes) -> str:
    import yaml

    whole = orjson.loads(data)
    return str(yaml.safe_dump(whole, sort_keys=True, default_flow_style=False, allow_unicode=True, width=2**31))


def runtime_in(snapshot: Obj, trainjob: Obj) -> Obj:
    """The runtime that a snapshot holds.

    Raises Invalid where the ConfigMap is somebody else's, holds no runtime, or one that the TrainJob does not name: there is
    no way back to the runtime of today, which may be another than the one that the job was built from.
    """
    if not is_controlled_by(snapshot, trainjob):
        raise _invalid(trainjob, "it belongs to another object")
    text = (snapshot.get("data") or {}).get(KEY)
    if text is None:
        raise _invalid(trainjob, f"it has no key {KEY!r}")
    runtime, reference = _loaded(text, trainjob), trainjob["spec"]["runtimeRef"]
    group = str(runtime.get("apiVersion", "")).partition("/")[0]
    for said, wanted in (
        (runtime.get("kind"), reference.get("kind") or "ClusterTrainingRuntime"),
        (group, reference.get("apiGroup") or "trainer.kubeflow.org"),
        (name_of(runtime), reference["name"]),
    ):
        if said != wanted:
            raise _invalid(trainjob, f"it holds {said!r} where the TrainJob names {wanted!r}")
    return runtime


def _loaded(text: str, trainjob: Obj) -> Obj:
    import yaml

    try:
        runtime: Any = orjson.loads(_as_json(text))
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise _invalid(trainjob, f"it is no YAML: {error}") from None
    if not isinstance(runtime, dict) or runtime.get("kind") not in _KINDS:
        raise _invalid(trainjob, "it holds no runtime")
    return runtime


@lru_cache(_REMEMBERED)
def _as_json(text: str) -> bytes:
    import yaml

    return orjson.dumps(yaml.safe_load(text))


def _invalid(trainjob: Obj, reason: str) -> Invalid:
    message = f"invalid runtime snapshot: ConfigMap {snapshot_name(trainjob)!r}: {reason}"
    return Invalid(message, problems=[Problem("spec.runtimeRef", message)])
