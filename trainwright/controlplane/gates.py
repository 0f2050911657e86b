"""Feature gates, with upstream's names; unknown ones are refused, and so are those that would change nothing here yet."""

from __future__ import annotations

from dataclasses import dataclass

_UNBUILT = ("InPlaceRestart", "RestartJob", "ElasticJobSet")


class GateError(ValueError):
    """A gate that cannot be set; the message says which can."""


@dataclass(frozen=True)
class FeatureGates:
    """`TrainJobStatus`: pods report progress. On by default here, off upstream."""

    TrainJobStatus: bool = True


def parse_gates(text: str) -> FeatureGates:
    """The gates that `A=true,B=false` sets. Raises GateError."""
    chosen: dict[str, bool] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = entry.partition("=")
        if value.lower() not in ("true", "false"):
            raise GateError(f"feature gate {entry!r}: expected NAME=true or NAME=false")
        on = value.lower() == "true"
        if name in _UNBUILT and on:
            raise GateError(f"feature gate {name!r} is not supported yet and can only be false")
        if name == "TrainJobStatus":
            chosen[name] = on
        elif name not in _UNBUILT:
            raise GateError(f"unknown feature gate {name!r}; known: TrainJobStatus, {', '.join(_UNBUILT)}")
    return FeatureGates(**chosen)
