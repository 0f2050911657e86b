"""Which controllers and feature gates of an embedded cluster can be chosen, under which names.

`--controllers` works like that of kube-controller-manager: a list of names. What an API server or a node cannot be used without has no
name here and always runs:

* with the API server, the garbage collector and the expiry of Events. Deletion in the foreground ends only with the collector, and
  kube-apiserver itself expires Events (`--event-ttl`). A second collector does no harm: deletions have a precondition on the UID.
* with the node, the scheduler, the removal of deleted pods that it never ran, and the protection and folders of claims: pods do not
  run without them. `--no-node` leaves them out.

Feature gates have upstream's names; unknown ones are rejected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from enum import StrEnum


class ControllerName(StrEnum):
    """A controller that may be left out, so that another program does its work; also its name in the metrics."""

    trainjob = "trainjob"
    """Kubeflow Trainer's: TrainJobs, and the finalizers of runtimes."""
    jobset = "jobset"
    """JobSet's."""
    job = "job"
    """kube-controller-manager's for Jobs."""
    local_queue = "local-queue"
    """Admits suspended TrainJobs to queues, as Kueue does."""


def parse_controllers(text: str) -> tuple[ControllerName, ...]:
    """Parse names separated by commas, in any order. Returns them in the order of `ControllerName`. Raises InvalidControllers."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise InvalidControllers(f"no controller is named; for none use --no-controllers; known: {', '.join(ALL_CONTROLLERS)}")
    if unknown := [name for name in names if name not in ALL_CONTROLLERS]:
        raise InvalidControllers(f"unknown controller {unknown[0]!r}; known: {', '.join(ALL_CONTROLLERS)}")
    return in_order(names)


ALL_CONTROLLERS = tuple(ControllerName)


class InvalidControllers(ValueError):
    """The choice of controllers is not possible; the message says why, and which names there are."""


def in_order(names: Collection[str]) -> tuple[ControllerName, ...]:
    """Return these names without duplicates, in the order of `ControllerName`."""
    return tuple(name for name in ControllerName if name in names)


def format_controllers(names: Iterable[str]) -> str:
    """Return the names as text for people: `none` if there are none."""
    return ", ".join(names) or "none"


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
