"""From `runtimeRef` to a runtime: what the cluster has, then the bundled catalogue where that is allowed, else a helpful error."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, name_of
from trainwright.runtimes.bundled import bundled_runtime, bundled_runtimes

Lookup = Callable[[str, str], Obj | None]
"""`(kind, name)` to a runtime, or None; a TrainingRuntime is looked up in the TrainJob's namespace."""


@dataclass(frozen=True)
class ResolvedRuntime:
    """The runtime and where it came from."""

    runtime: Obj
    source: Literal["cluster", "bundled"]


class RuntimeNotFound(Invalid):
    """The runtime that a TrainJob names does not exist; the message lists what does."""


def resolve_runtime(ref: Obj, lookup: Lookup, *, bundled: bool, known: Iterable[str] = ()) -> ResolvedRuntime:
    """The runtime that `spec.runtimeRef` names.

    `bundled` allows the catalogue (only for ClusterTrainingRuntime), after the cluster; `known` are the names to list
    when nothing is found. Raises RuntimeNotFound.
    """
    kind, name = str(ref.get("kind") or "ClusterTrainingRuntime"), str(ref.get("name") or "")
    found = lookup(kind, name)
    if found is not None:
        return ResolvedRuntime(found, "cluster")
    if bundled and kind == "ClusterTrainingRuntime" and (runtime := bundled_runtime(name)) is not None:
        return ResolvedRuntime(runtime, "bundled")
    names = sorted({*known, *((name_of(r) for r in bundled_runtimes()) if bundled else ())})
    near = difflib.get_close_matches(name, names, 1, 0.5)
    field = "spec.runtimeRef" if kind == "TrainingRuntime" else "spec.RuntimeRef"
    message = f"there is no {kind} {name!r}; "
    message += f"did you mean {near[0]!r}? " if near else ""
    message += f"known: {', '.join(names) or 'none'}"
    raise RuntimeNotFound(f"{field}: {message}", problems=[Problem(field, message)])
