"""Job events: one stream for all waiting clients, which are operators, components and the command line.

Derived from the job's status, from the log of rank 0 if the training reports no progress itself, and from looks at its pods.
`EventTracker` does no I/O, so that threads and event loops can both use it.
"""

from __future__ import annotations

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
        self._detect(trainjob, is_final=current.phase.is_final)
        if known is not None and not self._has_trainer_status:
            current = _keep_log_progress(current, known)
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

    def _detect(self, trainjob: Obj, *, is_final: bool) -> None:
        """Note a report for the detector, unless it was there before the wait: a job that is resumed still has its last one."""
        report = str(((trainjob.get("status") or {}).get("trainerStatus") or {}).get("lastUpdatedTime") or "")
        if self._first_report is None:
            self._first_report = report
        if is_final or report != self._first_report:
            self.divergence.observe(reported_values(trainjob), report)

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


def _keep_log_progress(current: Progress, known: Progress) -> Progress:
    """Keep the progress from the log; percent and time left are dropped once the job has ended."""
    bar = (None, None) if current.phase.is_final else (known.percent, known.remaining_seconds)
    return replace(current, percent=bar[0], remaining_seconds=bar[1], metrics=known.metrics)


def _is_of_rank_0(line: LogLine) -> bool:
    return line.source.endswith("-0-0") and not line.source.startswith(_INITIALIZERS)
