"""Feature gates, with upstream's names; unknown ones are refused."""

from __future__ import annotations

from dataclasses import dataclass, fields


class GateError(ValueError):
    """A gate that cannot be set; the message says which can."""


@dataclass(frozen=True)
class FeatureGates:
    """`TrainJobStatus`: pods report progress. On by default here, off upstream.

    The others are alpha gates of JobSet: `RestartJob` lets a failure policy restart single Jobs, `InPlaceRestart` the
    containers of pods that stay, and `ElasticJobSet` lets a running JobSet change its size.
    """

    TrainJobStatus: bool = True
    RestartJob: bool = False
    InPlaceRestart: bool = False
    ElasticJobSet: bool = False


def parse_gates(text: str) -> FeatureGates:
    """The gates that `A=true,B=false` sets. Raises GateError."""
    known = [entry.name for entry in fields(FeatureGates)]
    chosen: dict[str, bool] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = entry.partition("=")
        if value.lower() not in ("true", "false"):
            raise GateError(f"feature gate {entry!r}: expected NAME=true or NAME=false")
        if name not in known:
            raise GateError(f"unknown feature gate {name!r}; known: {', '.join(known)}")
        chosen[name] = value.lower() == "true"
    return FeatureGates(**chosen)
