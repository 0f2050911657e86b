"""Job events: one stream for all waiting clients, which are operators, components and the command line; and the metrics in them, as
numbers.

Derived from the job's status, from the log of rank 0 if the training reports no progress itself, and from looks at its pods.
`EventTracker` does no I/O, so that threads and event loops can both use it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from trainwright.api.objects import Obj
from trainwright.api.phase import Phase
from trainwright.jobs.logs.log_metrics import ParsedProgress, parse_progress
from trainwright.jobs.logs.log_options import LogLine
from trainwright.jobs.state.pods import RestartCounts
from trainwright.jobs.state.progress import DivergenceDetector, Progress, progress_of, reported_values
from trainwright.jobs.state.usage import Usage
from trainwright.jobs.wait.job_observer import Observation

_INITIALIZERS = ("dataset-initializer-", "model-initializer-")
STEP, EVAL_STEP, CURRENT_STEP, TOTAL_STEPS = "step", "eval_step", "current_step", "total_steps"
POSITIONS = (STEP, EVAL_STEP, CURRENT_STEP, TOTAL_STEPS, "current_epoch")
"""Values that say how far the training is, and are no metrics. `step` and `eval_step` are of the metrics beside them; the others are
those of transformers' own reports, which are sent some steps after the metrics in them were logged."""
_EVALUATION, _SUMMARY = "eval_", ("train_", "total_flos")
_EPOCH = "epoch"
_Point = tuple[int, dict[str, float]]


@dataclass(frozen=True)
class PhaseChanged:
    """A new phase; `before` is None for the first one."""

    phase: Phase
    before: Phase | None = None


@dataclass(frozen=True)
class Progressed:
    """Training progress; None for values that are not reported."""

    percent: int | None
    remaining_seconds: int | None


@dataclass(frozen=True)
class Metrics:
    """All current metrics, under the names and values that the training reports; `logged` names those that this report is of, if
    the others are of earlier ones."""

    values: tuple[tuple[str, str], ...]
    logged: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Logged:
    """All that the training itself has logged, each entry with its `step`: it comes once, when the job has succeeded."""

    entries: tuple[Mapping[str, float], ...]


@dataclass(frozen=True)
class Restarted:
    """The JobSet restarted, or, with `container`, a container: `count` times so far, of `allowed` if that is known."""

    count: int
    allowed: int | None = None
    container: bool = False


@dataclass(frozen=True)
class PodFailed:
    """A pod failed or was taken from its node, while the job goes on or is about to fail."""

    text: str


@dataclass(frozen=True)
class StartedFrom:
    """What the training starts from: nothing, a checkpoint of its own, an export and whose."""

    text: str


@dataclass(frozen=True)
class Used:
    """What a job that has ended used: node-hours, GPU-hours and, with a price, cost."""

    usage: Usage


@dataclass(frozen=True)
class StatusMessage:
    """Why the job is waiting; empty when it no longer waits."""

    text: str


@dataclass(frozen=True)
class LogOutput:
    """A line of the job's log, if logs were requested."""

    line: LogLine


JobEvent = PhaseChanged | Progressed | Metrics | Logged | Restarted | PodFailed | StartedFrom | Used | StatusMessage | LogOutput


JobEvents = tuple[JobEvent, ...]
"""The events between two observations, in order."""


OnJobEvents = Callable[[JobEvents], None]


def ignore_events(_events: JobEvents) -> None:
    """A callback that ignores events."""


def apply_event(progress: Progress | None, event: JobEvent) -> Progress:
    """Return the progress after an event."""
    progress = progress or Progress(Phase.Starting)
    match event:
        case PhaseChanged(phase=phase):
            return replace(progress, phase=phase)
        case Progressed(percent=percent, remaining_seconds=left):
            return replace(progress, percent=percent, remaining_seconds=left)
        case Metrics(values=values):
            return replace(progress, metrics=values)
        case StatusMessage(text=text):
            return replace(progress, note=text)
    return progress


class EventTracker:
    """Turns observations of one job into the events since the previous observation."""

    __slots__ = (
        "_first_report",
        "_has_trainer_status",
        "_is_impaired",
        "_is_running",
        "_largest_total",
        "_reason",
        "_restarts",
        "_started_from",
        "divergence",
        "progress",
    )

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.divergence = DivergenceDetector()
        """What the reports so far say about a divergence."""
        self._first_report: str | None = None
        self._has_trainer_status = self._is_running = self._is_impaired = False
        self._reason = self._started_from = ""
        self._restarts = RestartCounts()
        self._largest_total = 0

    def observe_status(self, trainjob: Obj) -> JobEvents:
        """Process the current state of the job."""
        return tuple(self._observe_status(trainjob))

    def observe_line(self, line: LogLine) -> JobEvents:
        """Process a line of the job's log."""
        return tuple(self._observe_line(line))

    def observe_pods(self, observation: Observation) -> JobEvents:
        """Process what a look at the job's pods has found."""
        return tuple(self._observe_pods(observation))

    def _observe_status(self, trainjob: Obj) -> Iterator[JobEvent]:
        current, known = progress_of(trainjob), self.progress
        self._has_trainer_status = bool((trainjob.get("status") or {}).get("trainerStatus"))
        # A report that was there before the wait is not judged: a job that is resumed still has its last one.
        report = str(((trainjob.get("status") or {}).get("trainerStatus") or {}).get("lastUpdatedTime") or "")
        if self._first_report is None:
            self._first_report = report
        if current.phase.is_final or report != self._first_report:
            self.divergence.observe(reported_values(trainjob), report)
        if known is not None and not self._has_trainer_status:
            # the log's progress stays; percent and time left end with the job
            bar = (None, None) if current.phase.is_final else (known.percent, known.remaining_seconds)
            current = replace(current, percent=bar[0], remaining_seconds=bar[1], metrics=known.metrics)
        if self._is_running and current.phase is Phase.Starting:
            self._largest_total = 0
        waits_on = self._is_running and self._is_impaired
        self._is_running = current.phase is Phase.Running
        was_queued = known is not None and known.phase in (Phase.Queued, Phase.Suspended)
        is_over = current.phase.is_final or (was_queued and current.phase is Phase.Starting)
        if is_over or (self._is_running and not waits_on):
            self._reason = ""
        if known is not None and known.phase in (Phase.Running, Phase.Restarting) and current.phase is Phase.Starting:
            current = replace(current, phase=known.phase)  # no pod is ready: between two runs, or before the end
        yield from self._update(replace(current, note=current.note or self._reason))

    def _observe_pods(self, observation: Observation) -> Iterator[JobEvent]:
        yield from map(PodFailed, observation.failures)
        restarted = () if observation.restarts is None else tuple(self._record_restarts(observation.restarts))
        yield from restarted
        if observation.started_from not in ("", self._started_from):
            self._started_from = observation.started_from
            yield StartedFrom(self._started_from)
        if self.progress is None or self.progress.phase.is_final:
            return
        current = self.progress
        is_restarting = observation.is_pending or any(not event.container for event in restarted)
        if is_restarting and current.phase is Phase.Running and not self._is_running:
            current = replace(current, phase=Phase.Restarting)
        elif observation.is_stopping and current.phase is Phase.Starting:  # it ran before it was waited for
            current = replace(current, phase=Phase.Running)
        self._is_impaired = observation.is_impaired
        if observation.reason is not None:
            if current.note in ("", self._reason):
                current = replace(current, note=observation.reason)
            self._reason = observation.reason
        yield from self._update(current)

    def _observe_line(self, line: LogLine) -> Iterator[JobEvent]:
        yield LogOutput(line)
        if self._has_trainer_status or self.progress is None or not _is_of_rank_0(line):
            return
        if (parsed := parse_progress(line.text)) is not None:
            self.divergence.observe(dict(parsed.metrics))
            yield from self._update(self._merge_progress(self.progress, parsed), tuple(dict(parsed.metrics)))

    def _record_restarts(self, restarts: RestartCounts) -> Iterator[Restarted]:
        known, self._restarts = self._restarts, restarts
        if restarts.jobset is not None and restarts.jobset.used > (known.jobset.used if known.jobset else 0):
            yield Restarted(restarts.jobset.used, restarts.jobset.allowed)
        elif restarts.containers > known.containers:
            yield Restarted(restarts.containers, container=True)

    def _update(self, current: Progress, logged: tuple[str, ...] = ()) -> Iterator[JobEvent]:
        """Yield the differences, the phase first, so that the other events refer to a known phase."""
        known, self.progress = self.progress, current
        if known is None or current.phase is not known.phase:
            yield PhaseChanged(current.phase, known.phase if known else None)
        known = known or Progress(current.phase)
        if current.note != known.note:
            yield StatusMessage(current.note)
        if (current.percent, current.remaining_seconds) != (known.percent, known.remaining_seconds):
            yield Progressed(current.percent, current.remaining_seconds)
        if current.metrics != known.metrics:
            yield Metrics(current.metrics, logged)

    def _merge_progress(self, known: Progress, parsed: ParsedProgress) -> Progress:
        """Merge progress from a log line. A bar with fewer steps than an earlier one is an evaluation within the training: ignored."""
        metrics = tuple({**dict(known.metrics), **dict(parsed.metrics)}.items())
        if not parsed.total or parsed.total < self._largest_total:
            return replace(known, metrics=metrics)
        self._largest_total = parsed.total
        percent = min(100, 100 * parsed.done // parsed.total)
        return replace(known, metrics=metrics, percent=percent, remaining_seconds=parsed.remaining_seconds)


def _is_of_rank_0(line: LogLine) -> bool:
    return line.source.endswith("-0-0") and not line.source.startswith(_INITIALIZERS)


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


def _group_of(name: str) -> str:
    """Return which metrics are logged together with this one: those of the training, of an evaluation, or of the end."""
    if name.startswith(_EVALUATION):
        return _EVALUATION
    return _SUMMARY[0] if name.startswith(_SUMMARY) else ""


def _whole(value: str | None) -> int | None:
    number = finite(value) if value is not None else None
    return None if number is None else int(number)


def finite(value: str | float) -> float | None:
    """Return a reported value as a number; None if it is none, or not finite."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
