"""Phase and training progress of a job. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.conditions import condition, is_finished
from trainwright.api.objects import Obj
from trainwright.api.phase import Phase, phase_of
from trainwright.jobs.state.divergence import without_counts


@dataclass(frozen=True, slots=True)
class Progress:
    """The phase, and the progress that the training reports or its log shows (percent, seconds left, metrics)."""

    phase: Phase
    percent: int | None = None
    remaining_seconds: int | None = None
    metrics: tuple[tuple[str, str], ...] = ()
    note: str = ""
    """Why the job waits: the queue's message, or that it does not fit in the cluster."""


def progress_of(trainjob: Obj) -> Progress:
    """Return the phase and the progress in the object's status."""
    reported = (trainjob.get("status") or {}).get("trainerStatus") or {}
    metrics = without_counts(reported_values(trainjob).items())
    percent, left = reported.get("progressPercentage"), reported.get("estimatedRemainingSeconds")
    return Progress(phase_of(trainjob), percent, left, metrics, _note(trainjob))


def reported_values(trainjob: Obj) -> dict[str, str]:
    """Return all that the training reports in the object's status, under its names."""
    reported = (trainjob.get("status") or {}).get("trainerStatus") or {}
    return {metric["name"]: metric["value"] for metric in reported.get("metrics") or []}


def _note(trainjob: Obj) -> str:
    if is_finished(trainjob):
        return ""
    found = [condition(trainjob, kind) for kind in (names.QUOTA_RESERVED, names.FITS_CLUSTER)]
    return "; ".join(str(entry.get("message")) for entry in found if entry is not None and entry.get("status") == "False")
