"""Resolves a `runtimeRef`: first in the cluster, then in the bundled catalogue if allowed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, name_of
from trainwright.runtimes.bundled import bundled_runtime, bundled_runtimes

Lookup = Callable[[str, str], Obj | None]
"""Maps `(kind, name)` to a runtime or None. A TrainingRuntime is looked up in the TrainJob's namespace."""


@dataclass(frozen=True)
class ResolvedRuntime:
    """A runtime and its source."""

    runtime: Obj
    source: Literal["cluster", "bundled"]


class RuntimeNotFound(Invalid):
    """The runtime of a TrainJob does not exist. The message lists the existing ones."""


def resolve_runtime(
    ref: Obj, lookup: Lookup, *, bundled: bool, known: Iterable[str] | None = None, unlisted: str = ""
) -> ResolvedRuntime:
    """Return the runtime of `spec.runtimeRef`.

    `bundled` also searches the catalogue (only for ClusterTrainingRuntime). For the error message, `known` are the existing names,
    None if they were not listed, and `unlisted` is why they cannot be. Raises RuntimeNotFound.
    """
    kind, name = str(ref.get("kind") or "ClusterTrainingRuntime"), str(ref.get("name") or "")
    found = lookup(kind, name)
    if found is not None:
        return ResolvedRuntime(found, "cluster")
    if bundled and kind == "ClusterTrainingRuntime" and (runtime := bundled_runtime(name)) is not None:
        return ResolvedRuntime(runtime, "bundled")
    names = sorted({*(known or ()), *((name_of(r) for r in bundled_runtimes()) if bundled else ())})
    similar = difflib.get_close_matches(name, names, 1, 0.5)
    message = f"there is no {kind} {name!r}"
    if names or known is not None:
        suggestion = f"did you mean {similar[0]!r}? " if similar else ""
        message += f"; {suggestion}known: {', '.join(names) or 'none'}"
    if unlisted:
        message += f"; those of the cluster cannot be listed: {unlisted}"
    field = "spec.runtimeRef" if kind == "TrainingRuntime" else "spec.RuntimeRef"
    raise RuntimeNotFound(f"{field}: {message}", problems=[Problem(field, message)])
