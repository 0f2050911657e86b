"""What happens to a TrainJob, as one stream for everybody who waits: operators, components and the command line.

It is made of the job's status, of the log of rank 0 where the training reports nothing itself, and of the JobSet where a job
falls back. `Story` does no I/O: threads and event loops share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from trainwright.api.objects import Obj
from trainwright.api.phase import Phase
from trainwright.jobs.log_line import LogLine
from trainwright.jobs.log_metrics import Reading, reading_of
from trainwright.jobs.progress import Progress, progress_of
from trainwright.jobs.restarts import Begun

_INITIALIZERS = ("dataset-initializer-", "model-initializer-")


@dataclass(frozen=True)
class PhaseChanged:
    """The first one has no `before`."""

    phase: Phase
    before: Phase | None = None


@dataclass(frozen=True)
class Progressed:
    """How far the training is; None for what it does not tell."""

    percent: int | None
    remaining_seconds: int | None


@dataclass(frozen=True)
class Metrics:
    """All that are known now, as the training words them."""

    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Restarted:
    """The JobSet began anew, or (`container`) a container in its pod: `count` times so far, of `allowed` where that is known."""

    count: int
    allowed: int | None = None
    container: bool = False


@dataclass(frozen=True)
class Noted:
    """Why it waits; empty when that is over."""

    text: str


@dataclass(frozen=True)
class Printed:
    """A line of its log, for those who asked for logs."""

    line: LogLine


Happening = PhaseChanged | Progressed | Metrics | Restarted | Noted | Printed
Happenings = tuple[Happening, ...]
"""What has happened between two looks, in order."""
OnHappenings = Callable[[Happenings], None]


def untold(_happenings: Happenings) -> None:
    """For those who only want the end."""


def after(progress: Progress | None, happening: Happening) -> Progress:
    """Where the job stands after that."""
    progress = progress or Progress(Phase.Starting)
    match happening:
        case PhaseChanged(phase=phase):
            return replace(progress, phase=phase)
        case Progressed(percent=percent, remaining_seconds=left):
            return replace(progress, percent=percent, remaining_seconds=left)
        case Metrics(values=values):
            return replace(progress, metrics=values)
        case Noted(text=text):
            return replace(progress, note=text)
    return progress


_NOTHING_BEGUN = Begun()


class Story:
    """What is seen of one job, told as what has happened since the last look."""

    __slots__ = ("_begun", "_heard", "_is_unanswered", "_largest", "_reports", "progress", "wonders")

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.wonders = False
        """Whether the job fell back, so that a look at what began anew (`counted`) would tell something."""
        self._reports = self._is_unanswered = False
        self._begun = _NOTHING_BEGUN
        self._heard = self._largest = 0

    def saw(self, trainjob: Obj) -> Happenings:
        """The job as it is now."""
        return tuple(self._saw(trainjob))

    def read(self, line: LogLine) -> Happenings:
        """A line of its log."""
        return tuple(self._read(line))

    def heard(self, restarts: int) -> None:
        """How often containers began anew as far as somebody has noticed: more than before is worth a look."""
        self.wonders = self.wonders or restarts > self._heard
        self._heard = restarts

    def counted(self, begun: Begun) -> Happenings:
        """What has begun anew, as it was read while the story wondered; without an answer it wonders again at the next change."""
        return tuple(self._counted(begun))

    def _saw(self, trainjob: Obj) -> Iterator[Happening]:
        seen, known = progress_of(trainjob), self.progress
        self._reports = bool((trainjob.get("status") or {}).get("trainerStatus"))
        if known is not None and not self._reports:
            seen = _with_what_its_log_told(seen, known)
        if known is not None and known.phase is Phase.Running and seen.phase in (Phase.Starting, Phase.Restarting):
            self.wonders, self._largest = True, 0
        self.wonders = self.wonders or (self._is_unanswered and seen != known)
        yield from self._become(seen)

    def _read(self, line: LogLine) -> Iterator[Happening]:
        yield Printed(line)
        if self._reports or self.progress is None or not _is_of_rank_0(line):
            return
        if (reading := reading_of(line.text)) is not None:
            yield from self._become(self._with(self.progress, reading))

    def _counted(self, begun: Begun) -> Iterator[Happening]:
        before, self._begun = self._begun, begun
        self.wonders = self._is_unanswered = False
        if begun.jobset is not None and begun.jobset.used > (before.jobset.used if before.jobset else 0):
            yield Restarted(begun.jobset.used, begun.jobset.allowed)
        elif begun.containers > before.containers:
            yield Restarted(begun.containers, container=True)
        else:
            self._is_unanswered = self.progress is not None and self.progress.phase is Phase.Starting

    def _become(self, seen: Progress) -> Iterator[Happening]:
        """The differences, the phase first, so that each is told of a phase that is known."""
        known, self.progress = self.progress, seen
        if known is None or seen.phase is not known.phase:
            yield PhaseChanged(seen.phase, known.phase if known else None)
        known = known or Progress(seen.phase)
        if seen.note != known.note:
            yield Noted(seen.note)
        if (seen.percent, seen.remaining_seconds) != (known.percent, known.remaining_seconds):
            yield Progressed(seen.percent, seen.remaining_seconds)
        if seen.metrics != known.metrics:
            yield Metrics(seen.metrics)

    def _with(self, known: Progress, reading: Reading) -> Progress:
        """A bar of fewer steps than another is one of an evaluation within the training, and tells nothing of the whole."""
        metrics = tuple({**dict(known.metrics), **dict(reading.metrics)}.items())
        if not reading.total or reading.total < self._largest:
            return replace(known, metrics=metrics)
        self._largest = reading.total
        percent = min(100, 100 * reading.done // reading.total)
        return replace(known, metrics=metrics, percent=percent, remaining_seconds=reading.remaining_seconds)


def _with_what_its_log_told(seen: Progress, known: Progress) -> Progress:
    """That still holds; only how far it was does not tell how it ended."""
    bar = (None, None) if seen.phase.is_final else (known.percent, known.remaining_seconds)
    return replace(seen, percent=bar[0], remaining_seconds=bar[1], metrics=known.metrics)


def _is_of_rank_0(line: LogLine) -> bool:
    return line.source.endswith("-0-0") and not line.source.startswith(_INITIALIZERS)
