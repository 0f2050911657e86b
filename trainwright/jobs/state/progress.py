"""Phase and progress of a training, as one line of text too, and whether it has diverged. Pure.

A training has diverged if its loss, or the norm of its gradients, is not finite and stays so. The scaler of a training in fp16
skips single steps with infinite gradients, at its beginning also several in a row, so one such report means nothing. A loss that is
not finite does not recover.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainwright.api import names
from trainwright.api.conditions import condition, is_finished
from trainwright.api.objects import Obj
from trainwright.api.phase import Phase, phase_of
from trainwright.text.foreign_texts import printable

_SHOWN = ("loss", "eval_loss", "mean_token_accuracy", "epoch")
_LINE = re.compile(rf"({'|'.join(Phase)})( \d+ %( \(\d+ s left\))?)?( ({'|'.join(_SHOWN)})=\S+)*(: .*)?")
LOSS_REPORTS = 3
"""Reports in a row with a loss that is not finite, after which a running training has diverged."""
GRADIENT_REPORTS = 10
"""The same for gradients with a finite loss: a scaler that starts at 2**16 may halve its scale that often before a step succeeds."""
LAST_GRADIENT_REPORTS = 3
"""The same for infinite gradients of a training that has ended. NaN in its last report is enough: nothing has skipped that step."""
LOSSES = ("loss", "train_loss", "training_loss", "train/loss")
"""Names of the training loss. `train_loss` of transformers is the mean of all: where there is a `loss`, the others do not count."""
GRADIENTS = ("grad_norm", "gradient_norm", "train/grad_norm")
SINCE, REPORTS = "_not_finite_since", "_not_finite_reports"
"""Suffixes of the figures in which a training says since which step a figure is not finite, and in how many reports in a row."""


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


def _note(trainjob: Obj) -> str:
    if is_finished(trainjob):
        return ""
    found = [condition(trainjob, kind) for kind in (names.QUOTA_RESERVED, names.FITS_CLUSTER)]
    return "; ".join(str(entry.get("message")) for entry in found if entry is not None and entry.get("status") == "False")


def reported_values(trainjob: Obj) -> dict[str, str]:
    """Return all that the training reports in the object's status, under its names."""
    reported = (trainjob.get("status") or {}).get("trainerStatus") or {}
    return {metric["name"]: metric["value"] for metric in reported.get("metrics") or []}


def progress_line(progress: Progress) -> str:
    """Return a line such as `Running 40 % (12 s left) loss=1.52`."""
    parts = [progress.phase.value]
    if progress.percent is not None:
        left = f" ({progress.remaining_seconds} s left)" if progress.remaining_seconds else ""
        parts.append(f"{progress.percent} %{left}")
    metrics = dict(progress.metrics)
    parts += [f"{name}={_short(metrics[name])}" for name in _SHOWN if name in metrics]
    line = " ".join(parts)
    return printable(f"{line}: {progress.note}" if progress.note else line).replace("\n", " ")


def _short(value: str) -> str:
    try:
        return f"{float(value):.4g}"
    except ValueError:
        return value


def is_progress_line(text: str) -> bool:
    """Return whether a line of a step's log is one of `progress_line`."""
    return _LINE.fullmatch(text) is not None


@dataclass(frozen=True)
class Divergence:
    """The figure that is not finite, its value, since when (`step 12`), and in how many reports; `last_finite` is empty if
    none was seen."""

    name: str
    value: str
    since: str
    reports: int
    last_finite: str = ""

    def describe(self) -> str:
        """Return a text such as `loss is nan since step 12 (3 reports in a row); the last finite value was 1.52 at step 11`."""
        times = "in its last report" if self.reports == 1 else f"{self.reports} reports in a row"
        before = f"; the last finite value was {self.last_finite}" if self.last_finite else ""
        return f"{self.name} is {self.value} since {self.since} ({times}){before}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Divergence:
        return cls(**facts)


class DivergenceDetector:
    """Follows the reports of one training, in their order."""

    __slots__ = ("_count", "_gradient", "_has_loss", "_is_zero", "_key", "_loss")

    def __init__(self) -> None:
        self._loss, self._gradient = _Figure(), _Figure()
        self._has_loss = self._is_zero = False
        self._key = ""
        self._count = 0

    def observe(self, values: Mapping[str, str], key: str = "") -> None:
        """Note a report. One with the step (or epoch) of the one before repeats it, and so does one with its `key`."""
        loss, gradient = (next((name for name in known if name in values), "") for known in (LOSSES, GRADIENTS))
        self._has_loss = self._has_loss or loss == LOSSES[0]
        if self._has_loss and loss != LOSSES[0]:  # the other names count only in trainings that report no `loss`
            loss = ""
        if not loss and not gradient:  # it reports neither: nothing can diverge
            return
        place = next((f"{name} {values[name]}" for name in ("step", "epoch") if name in values), "")
        if (known := place or key) and known == self._key:  # a repeated report must not count twice
            return
        self._key, self._count = known, self._count + 1
        if "current_step" in values and "step" not in values:
            place = f"step {values['current_step']}"
        for figure, name in ((self._loss, loss), (self._gradient, gradient)):
            if name:
                own = values.get(f"{name}{REPORTS}", "0")
                reports = int(own) if own.isdecimal() else 0
                figure.observe(name, values[name], place or f"report {self._count}", values.get(f"{name}{SINCE}", ""), reports)
        if loss:
            self._is_zero = is_number(values[loss]) and float(values[loss]) == 0

    def running(self) -> Divergence | None:
        """Return the divergence of a training that goes on, or None."""
        if self._loss.reports >= LOSS_REPORTS:
            return self._loss.divergence()
        return self._gradient.divergence() if self._gradient.reports >= GRADIENT_REPORTS else None

    def ended(self) -> Divergence | None:
        """Return the divergence of a training that has ended, or None.

        A loss of exactly 0 beside gradients that are not finite is none: transformers leaves NaN out of the losses that it logs.
        """
        if self._loss.reports:
            return self._loss.divergence()
        figure = self._gradient
        is_lasting = figure.reports >= LAST_GRADIENT_REPORTS or (
            figure.reports and (self._is_zero or "nan" in figure.value.lower())
        )
        return figure.divergence() if is_lasting else None


class _Figure:
    """One figure over the reports."""

    __slots__ = ("last_finite", "name", "reports", "since", "value")

    def __init__(self) -> None:
        self.name = self.value = self.since = self.last_finite = ""
        self.reports = 0

    def observe(self, name: str, value: str, place: str, since: str = "", reports: int = 0) -> None:
        """Note the value of a report; `since` and `reports` are what the training itself says about earlier ones."""
        if not is_not_finite(value):
            self.reports, self.since = 0, ""
            if is_number(value):
                self.last_finite = f"{float(value):.4g} at {place}"
            return
        if not self.reports:
            self.since = place
        self.name, self.value, self.reports = name, value, self.reports + 1
        if since:
            self.since, self.reports = f"step {since}", max(self.reports, reports)

    def divergence(self) -> Divergence:
        return Divergence(self.name, self.value, self.since, self.reports, self.last_finite)


def divergence_in(reports: Iterable[Mapping[str, Any]]) -> Divergence | None:
    """Return the divergence of a training that has ended with these reports, or None."""
    detector = DivergenceDetector()
    for report in reports:
        detector.observe({name: str(value) for name, value in report.items()})
    return detector.ended()


def without_counts(metrics: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return figures without those that only say since when another one is not finite."""
    return tuple((name, value) for name, value in metrics if not name.endswith((SINCE, REPORTS)))


def is_number(value: str) -> bool:
    """Whether the text is a finite number."""
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def is_not_finite(value: str) -> bool:
    """Whether the text is NaN or an infinity."""
    try:
        return not math.isfinite(float(value))
    except ValueError:
        return False
