"""A runtime made ready once: admitted, and its template as Kubernetes' types write it. Kept by content, since many jobs share one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from trainwright.api.admission import admit
from trainwright.api.errors import Invalid
from trainwright.api.objects import Obj, name_of
from trainwright.materialize.serialised import as_written, quantity_problems
from trainwright.materialize.template_types import JOBSET_SPEC

_MOST_RUNTIMES = 64
"""A cluster has some dozen; a compiled one takes a few kilobytes."""


@dataclass(frozen=True)
class CompiledRuntime:
    """Shared between calls: nobody changes `runtime`, and the template is handed out as copies."""

    runtime: Obj
    _template: bytes

    def template(self) -> Obj:
        """The JobSet spec of the runtime, for the caller to change."""
        copied: Obj = orjson.loads(self._template)
        return copied


def compiled(runtime: Obj) -> CompiledRuntime:
    """Raises Invalid when the runtime would not be admitted."""
    return _compiled(orjson.dumps(runtime, option=orjson.OPT_SORT_KEYS))


@lru_cache(maxsize=_MOST_RUNTIMES)
def _compiled(content: bytes) -> CompiledRuntime:
    loaded: Any = orjson.loads(content)
    runtime = admit(loaded).object
    spec = ((runtime.get("spec") or {}).get("template") or {}).get("spec") or {}
    if found := list(quantity_problems(JOBSET_SPEC, spec, "spec.template.spec")):
        raise Invalid.of(runtime["kind"], name_of(runtime), found, "trainer.kubeflow.org")
    return CompiledRuntime(runtime, orjson.dumps(as_written(JOBSET_SPEC, spec)))
