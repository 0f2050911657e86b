"""Stops hopeless trials of a sweep while others train: median stopping, as Katib's `medianstop`, on the metrics that trainings report.

The rule is pure. What is known of a trial is what its TrainJob's status showed while it was looked at.
"""

from __future__ import annotations

import logging
import re
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from trainwright.api import names
from trainwright.api.errors import ApiError
from trainwright.api.objects import annotations_of, name_of, uid_of
from trainwright.api.phase import Phase
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.attempts import attempt_of
from trainwright.jobs.state.progress import Progress, progress_of
from trainwright.jobs.submit.job_lookup import LocatedJob, jobs_of_run
from trainwright.jobs.wait.give_up import stop_early
from trainwright.jobs.wait.job_events import finite
from trainwright.submission.suspension import early_stop_reason

log = logging.getLogger(__name__)
_STEP = "step"


@dataclass(frozen=True)
class MedianStop:
    """A trial is hopeless if its best value so far is worse than the median of the other trials' averages up to the same progress.

    A trial is judged once it has reported `start_step` values, and there are `min_trials` others to compare it with. Both defaults are
    Katib's, which only compares with trials that have ended; here it is enough that they have come as far.
    """

    metric: str
    greater_is_better: bool = False
    min_trials: int = 3
    start_step: int = 4

    def __post_init__(self) -> None:
        if not self.metric:
            raise ValueError("metric: name the reported value by which trials are compared")
        for name in ("min_trials", "start_step"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} must be at least 1")


@dataclass
class TrialReports:
    """What a trial has reported: `values` with the progress at which each was reported, and how far the trial has come.

    Progress is the percentage that the training reports, else its step, else the number of the report.
    """

    values: list[tuple[float, float]] = field(default_factory=list)
    reached: float = 0.0
    has_succeeded: bool = False

    def observe(self, progress: Progress, metric: str) -> None:
        """Add the current value, unless it is the one of the last report."""
        metrics = dict(progress.metrics)
        value, step = finite(metrics.get(metric, "")), finite(metrics.get(_STEP, ""))
        is_new = value is not None and (not self.values or self.values[-1][1] != value)
        count = float(len(self.values) + is_new)
        place = float(progress.percent) if progress.percent is not None else step if step is not None else count
        if place < self.reached:  # it was restarted from a checkpoint, and repeats what it has reported
            self.values = [(at, one) for at, one in self.values if at < place]
        self.reached = place
        self.has_succeeded = progress.phase is Phase.Succeeded
        if is_new and value is not None:
            self.values.append((place, value))


def why_hopeless(trial: TrialReports, others: Iterable[TrialReports], rule: MedianStop) -> str:
    """Return why a trial is hopeless, empty if it is not. Pure.

    The trial with the best value of all that are compared is never hopeless.
    """
    if len(trial.values) < rule.start_step:  # too early to judge
        return ""
    averages = []
    for other in others:
        known = [value for place, value in other.values if place <= trial.reached]
        if known and (other.reached >= trial.reached or other.has_succeeded):
            averages.append(statistics.fmean(known))
    if len(averages) < rule.min_trials:  # too few to know what is usual
        return ""
    values, median = [value for _, value in trial.values], statistics.median(averages)
    best = max(values) if rule.greater_is_better else min(values)
    if not (best < median if rule.greater_is_better else best > median):  # at least as good as half of the others
        return ""
    return (
        f"its best {rule.metric} after {len(values)} reports is {best:.6g}, worse than {median:.6g}, "
        f"the median of the averages of {len(averages)} other trials"
    )


@dataclass(frozen=True)
class StoppedTrial:
    """A trial that was stopped: its number, its TrainJob, and why."""

    index: int
    trainjob: str
    reason: str


class SweepMonitor:
    """Follows the trials of one sweep, by repeated looks at their jobs, and stops the hopeless ones."""

    def __init__(self, rule: MedianStop):
        self._rule = rule
        self._reports: dict[str, TrialReports] = {}
        self.stopped: list[StoppedTrial] = []

    def observe(self, jobs: dict[int, LocatedJob]) -> int:
        """Take note of the jobs, by the number of the trial, and stop what is hopeless; returns how many jobs may still report.

        Raises ApiError if a job cannot be stopped.
        """
        open_jobs, comparable = dict[int, LocatedJob](), set[str]()
        for index, job in jobs.items():
            progress = progress_of(job.trainjob)
            self._reports.setdefault(uid_of(job.trainjob), TrialReports()).observe(progress, self._rule.metric)
            if progress.phase is not Phase.Failed:  # what it reported may be the reason why it failed
                comparable.add(uid_of(job.trainjob))
            if not progress.phase.is_final and not early_stop_reason(job.trainjob):
                open_jobs[index] = job
        still_open = len(open_jobs)
        for index, job in open_jobs.items():
            own = uid_of(job.trainjob)
            others = [self._reports[uid] for uid in comparable - {own}]
            reason = why_hopeless(self._reports[own], others, self._rule)
            if reason and stop_early(job.cluster, job.trainjob, reason):
                log.info("trial %d is stopped: TrainJob %s: %s", index, name_of(job.trainjob), reason)
                self.stopped.append(StoppedTrial(index, name_of(job.trainjob), reason))
                still_open -= 1
        return still_open


def trials_of_run(cluster: Cluster, *, owner: str, run: str, step: str, namespace: str) -> dict[int, LocatedJob]:
    """Return the latest job of each trial that has one, by the number of the trial. Raises ApiError."""
    pattern = re.compile(rf"{re.escape(f'{owner}/{run}/{step}')}(?:@(\d+))?\[(\d+)\]")
    found = dict[int, tuple[tuple[int, int], LocatedJob]]()
    for job in jobs_of_run(cluster, run, namespace):
        match = pattern.fullmatch(annotations_of(job.trainjob).get(names.OWNER_ANNOTATION, ""))
        if match is None:
            continue
        index, age = int(match[2]), (int(match[1] or 0), attempt_of(job.trainjob))
        if index not in found or found[index][0] < age:
            found[index] = (age, job)
    return {index: job for index, (_, job) in sorted(found.items())}


def stop_hopeless_trials(
    trials: Callable[[], dict[int, LocatedJob]],
    rule: MedianStop,
    *,
    have_ended: Callable[[], bool],
    pause: Callable[[float], object] = time.sleep,
    poll_seconds: float = 10.0,
    idle_seconds: float = 600.0,
) -> Sequence[StoppedTrial]:
    """Look at the trials again and again, and stop the hopeless ones, until all have ended; returns those that were stopped.

    Args:
        trials: Reads the jobs, see `trials_of_run`.
        rule: The rule.
        have_ended: Whether the orchestrator has ended all trials; only it knows of those that have no job yet.
        pause: Waits so many seconds.
        poll_seconds: Seconds between two looks. Of a training that reports faster, values in between are missing.
        idle_seconds: Seconds without any job that may still report after which this ends too: where tasks run one after another, the
            trials wait for this one.

    An API server that cannot be reached for a while is waited for. Raises ApiError for anything else.
    """
    monitor, idle_since = SweepMonitor(rule), time.monotonic()
    while not have_ended():
        try:
            if monitor.observe(trials()):
                idle_since = time.monotonic()
        except ApiError as error:
            if not error.retryable:  # waiting longer would not help
                raise
            log.warning("the trials could not be read or stopped; trying again: %s", error.message)
        if time.monotonic() - idle_since >= idle_seconds:
            log.warning("no trial has been training for %g s: hopeless trials are not stopped any more", idle_seconds)
            break
        pause(poll_seconds)
    return monitor.stopped
