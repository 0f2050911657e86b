"""The metrics in a job's events as numbers: those that have changed, and the step that they are of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from trainwright.jobs.wait.job_events import JobEvents, Logged, Metrics

STEP, EVAL_STEP, CURRENT_STEP, TOTAL_STEPS = "step", "eval_step", "current_step", "total_steps"
POSITIONS = (STEP, EVAL_STEP, CURRENT_STEP, TOTAL_STEPS, "current_epoch")
"""Values that say how far the training is, and are no metrics. `step` and `eval_step` are of the metrics beside them; the others are
those of transformers' own reports, which are sent some steps after the metrics in them were logged."""
_EVALUATION, _SUMMARY = "eval_", ("train_", "total_flos")
_EPOCH = "epoch"
_Point = tuple[int, dict[str, float]]


class MetricChanges:
    """Remembers which values were reported before. A training that reports no step gets one: the number of the report."""

    __slots__ = ("_count", "_current", "_known", "_seen", "_total")

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._seen: set[tuple[str, int]] = set()
        self._current = self._total = 0
        self._count = 0

    @property
    def is_counted(self) -> bool:
        """Whether a report had no step, so that reports were counted instead."""
        return self._count > 0

    def of(self, events: JobEvents) -> Iterator[_Point]:
        """Yield step and metrics of each report in the events, and at the end what the reports have missed.

        Of a report without a new step, only what has changed; what is not finite is left out.
        """
        for event in events:
            if isinstance(event, Metrics):
                yield from self._reported(event)
            elif isinstance(event, Logged) and not self.is_counted:
                yield from self._missed(event)

    def _reported(self, event: Metrics) -> Iterator[_Point]:
        values = dict(event.values)
        changed = {name for name, value in values.items() if self._known.get(name) != value}
        self._known = values
        logged, steps, is_exact = event.logged or tuple(values), self._steps_of(values), STEP in values
        points: dict[int | None, dict[str, float]] = {}
        for name in logged:
            if name in POSITIONS or name not in values or (number := finite(values[name])) is None:
                continue
            group = _group_of(name)
            is_new = is_exact and (group, steps[group]) not in self._seen
            if is_new or (name in changed and not (is_exact and name == _EPOCH)):
                points.setdefault(steps[group], {})[name] = number
        self._seen |= {(_group_of(name), step) for step, numbers in points.items() if step is not None for name in numbers}
        for step, numbers in points.items():
            self._count += step is None
            yield self._count if step is None else step, numbers

    def _missed(self, event: Logged) -> Iterator[_Point]:
        for entry in event.entries:
            numbers = {name: float(value) for name, value in entry.items() if name not in POSITIONS and math.isfinite(value)}
            groups = {_group_of(name) for name in numbers if name != _EPOCH} or {""}
            if "" not in groups:
                numbers.pop(_EPOCH, None)  # that of an evaluation, or of the end
            step = int(entry[STEP])
            missing = {group for group in groups if (group, step) not in self._seen}
            self._seen |= {(group, step) for group in groups}
            if found := {name: number for name, number in numbers.items() if _group_of(name) in missing}:
                yield step, found

    def _steps_of(self, values: Mapping[str, str]) -> dict[str, int | None]:
        """Return the step of each group of metrics; None if the training reports none."""
        step, current = _whole(values.get(STEP)), _whole(values.get(CURRENT_STEP))
        self._total = _whole(values.get(TOTAL_STEPS)) or self._total
        if step is None and current is None and self._current:
            current = self._total or self._current  # the last report of transformers has no step: it is of the end
        self._current = current or self._current
        step = current if step is None else step
        evaluated = _whole(values.get(EVAL_STEP))
        return {
            "": step,
            _EVALUATION: step if evaluated is None else evaluated,
            _SUMMARY[0]: step if current is None else current,
        }


def finite(value: str | float) -> float | None:
    """Return a reported value as a number; None if it is none, or not finite."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _whole(value: str | None) -> int | None:
    number = finite(value) if value is not None else None
    return None if number is None else int(number)


def _group_of(name: str) -> str:
    """Return which metrics are logged together with this one: those of the training, of an evaluation, or of the end."""
    if name.startswith(_EVALUATION):
        return _EVALUATION
    return _SUMMARY[0] if name.startswith(_SUMMARY) else ""
