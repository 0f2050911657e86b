"""What tracking tools show of a run: its settings as parameters, and where it comes from as tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.identity import Identity
from trainwright.text.foreign_texts import without_user

_PARAMETERS = ("runtime", "builtin", "num_nodes", "num_proc_per_node", "image")
_TAGS = ("dataset_uri", "model_uri", "dataset_digest", "model_digest", "code")


@dataclass(frozen=True)
class TrackedRun:
    """`step` is the same for each try of a step; `id` is a short form of it."""

    name: str
    step: str
    id: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    project: str = "trainwright"


def tracked_run(identity: Identity, request: TrainRequest) -> TrackedRun:
    """Return what is shown of the job of a step. No values of environment variables, which may be secret, are among it."""
    settings = dict(_flat("", {**request.settings, **request.func_args}))
    chosen = {name: value for name in _PARAMETERS if (value := getattr(request, name))}
    sources = {name: without_user(str(value)) for name in _TAGS if (value := getattr(request, name))}
    return TrackedRun(
        name=identity.name(),
        step=str(identity),
        id=identity.digest()[:16],
        parameters={**chosen, **settings},
        tags={"trainwright.run": identity.run, **{f"trainwright.{name}": value for name, value in sources.items()}},
    )


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects under names with dots."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value
