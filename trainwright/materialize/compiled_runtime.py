"""Admits a runtime and serializes its template like Kubernetes' Go types. Cached by content, since many jobs share a runtime."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from trainwright.api.admission.admit import admit
from trainwright.api.errors import Invalid
from trainwright.api.objects import Obj, name_of
from trainwright.materialize.go_serialization import quantity_problems, serialize
from trainwright.materialize.go_types import JOBSET_SPEC

_CACHE_SIZE = 64
"""A cluster has a few dozen runtimes; a compiled one takes a few kilobytes."""
_LARGEST_CACHED = 64 * 1024
"""Bytes of the largest runtime that is cached: one can have megabytes."""


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
