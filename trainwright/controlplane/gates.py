"""Feature gates with upstream's names; unknown gates are rejected."""

from __future__ import annotations

from dataclasses import dataclass, fields


class GateError(ValueError):
    """An unknown or malformed gate; the message lists the known ones."""


@dataclass(frozen=True)
class FeatureGates:
    """`TrainJobStatus` enables progress reports from pods: on by default here, off upstream.

    The alpha gates of JobSet are off, as on a stock cluster, and cannot be switched on.
    """

    TrainJobStatus: bool = True


def parse_gates(text: str) -> FeatureGates:
    """Parse gates in the form `A=true,B=false`. Raises GateError."""
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
