"""Errors of waiting for a TrainJob. Their messages state what happened, where, and the last observed state.

`retryable` says whether a retry of the same request may succeed. It is advisory: nothing here retries. A client that gives up a job
writes the verdict of its error on the job, from which other clients raise the same error.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.phase import FailedPod, Verdict
from trainwright.api.times import now
from trainwright.jobs.diagnosis.failure_report import FailureReport
from trainwright.jobs.diagnosis.pod_failure import PodFailure
from trainwright.jobs.logs.log_excerpt import patterns_in
from trainwright.jobs.state.progress import Divergence

_AFTER_DIVERGENCE = (
    "Its checkpoints stay; those from before can be used. A retry would diverge again: train as another run, with a lower learning "
    "rate, gradient clipping or other data. With limits.fail_on_divergence=false, such a training goes on"
)


class TrainJobError(Exception):
    """Base of the errors about one TrainJob."""

    retryable = False
    is_verdict = False
    """Whether another client has given the job up, and has stopped it."""


class TrainJobFailed(TrainJobError):
    """The job failed. The message is the full report; `report` is the same as data, or None if it could not be created."""

    is_unfinished = False
    """Whether its pods would be started again: who waits for the job has to stop it."""

    def __init__(self, message: str, trainjob: Obj, report: FailureReport | None = None):
        super().__init__(message)
        self.trainjob = trainjob
        self.report = report


class StepFailed(TrainJobFailed):
    """A container of a step failed. Retryable if the cause was the network or the rendezvous."""

    def __init__(self, message: str, trainjob: Obj, report: FailureReport | None = None):
        super().__init__(message, trainjob, report)
        self.retryable = report is not None and report.is_transient


class OutOfMemory(StepFailed):
    """A container or a GPU ran out of memory. A retry cannot succeed."""

    def __init__(self, message: str, trainjob: Obj, report: FailureReport | None = None):
        super().__init__(message, trainjob, report)
        self.retryable = False


class CannotRun(StepFailed):
    """The program can never run: its packages cannot be installed, or its entry point cannot be imported or called.

    A retry cannot succeed.
    """

    def __init__(self, message: str, trainjob: Obj, report: FailureReport | None = None):
        super().__init__(message, trainjob, report)
        self.retryable = False


class Preempted(TrainJobFailed):
    """A pod was preempted, evicted from its node, or lost with it. The request itself is fine."""

    retryable = True


class TooManyRestarts(TrainJobError):
    """A pod has failed more often than the step allows, or can never run, and its runtime starts it again.

    Becomes a TrainJobFailed with a report.
    """


class Cancelled(TrainJobError):
    """The wait was ended by SIGTERM or Ctrl-C; the message states what was done with the job."""

    retryable = True


class StoppedEarly(TrainJobError):
    """A trial of a sweep was stopped because it is hopeless. A retry would be as hopeless."""

    def __init__(self, message: str, trainjob: Obj):
        super().__init__(message)
        self.trainjob = trainjob


class Diverged(TrainJobError):
    """The training has diverged: its loss or its gradients are not finite. `report` says which figure, its value, and since when.

    A retry of the same request would diverge again.
    """

    def __init__(self, trainjob: Obj, report: Divergence):
        super().__init__(f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)} diverged: {report.describe()}")
        self.trainjob, self.report = trainjob, report

    def add_outcome(self, text: str) -> None:
        """Add what was done with the job to the message."""
        self.args = (f"{self.args[0]}; {text}",)

    def __str__(self) -> str:
        return f"{self.args[0]}\n{_AFTER_DIVERGENCE}"


class TrainJobDeleted(TrainJobError):
    """The job was deleted while a client waited for it. A retry of the step recreates it."""

    retryable = True


class TrainJobDeadline(TrainJobError):
    """A deadline expired: `what` is `queue`, `start`, `run` or `total`. The job still exists; the caller decides what to do next."""

    retryable = True
    lines: tuple[str, ...] = ()
    """The last lines of the training's log, if it was running."""

    def __init__(self, message: str, what: str, lines: Sequence[str] = ()):
        super().__init__(message)
        self.what, self.lines = what, tuple(lines)

    def add_outcome(self, text: str) -> None:
        """Add what was done with the job to the message."""
        self.args = (f"{self.args[0]}; {text}",)

    def __str__(self) -> str:
        return "\n".join([str(self.args[0]), *(f"    {line}" for line in self.lines)])


class QueueTimeout(TrainJobDeadline):
    """The job was queued or suspended for too long."""


class StartTimeout(TrainJobDeadline):
    """Not all pods of the training have started in time. The message states what they were waiting for."""


class CannotStart(StartTimeout):
    """The job can never start as it is: waiting longer is pointless, so the start deadline is not waited for."""

    retryable = False


class RunTimeout(TrainJobDeadline):
    """The job trained for too long. A retry resumes from its last complete checkpoint."""


class DeadlineExceeded(RunTimeout, TrainJobFailed):
    """The cluster ended the job at its activeDeadlineSeconds: a RunTimeout of a failed job."""

    def __init__(self, message: str, trainjob: Obj, report: FailureReport | None = None):
        TrainJobFailed.__init__(self, message, trainjob, report)
        self.what = "run"


class ImagePullFailed(TrainJobError):
    """An image could not be pulled. Raised as a StartTimeout while the job still exists, or as a TrainJobFailed."""

    retryable = False


class ImagePullTimeout(ImagePullFailed, StartTimeout):
    """The start deadline expired while an image could not be pulled."""


class ImagePullFailure(ImagePullFailed, TrainJobFailed):
    """The job failed while an image could not be pulled."""


class ImageCannotBePulled(ImagePullFailed, CannotStart):
    """An image can never be pulled: its name is invalid, or it may not be pulled and is not on the node."""


class CommandNotFound(CannotStart):
    """The command of the container does not exist in its image, on any node."""


class NodeLost(TrainJobDeadline):
    """Pods of the job have not ended on a lost node for too long. Nothing is wrong with the request."""

    def __init__(self, message: str):
        super().__init__(message, "node")


class TrainJobNameTaken(TrainJobError):
    """A TrainJob of that name exists, but has another owner or was created from another request."""


class RunFolderTaken(TrainJobNameTaken):
    """Another TrainJob writes to the folder of this run. Retryable if both were submitted at the same time."""


class WorkspaceMismatch(TrainJobError):
    """The workspace's PersistentVolumeClaim exists, but does not match the request. Retryable while it is being deleted."""

    def __init__(self, message: str, *, retryable: bool = False):
        super().__init__(message)
        self.retryable = retryable


_DEADLINES: dict[str, type[TrainJobDeadline]] = {"queue": QueueTimeout, "start": StartTimeout, "run": RunTimeout}


def deadline_error(message: str, what: str, *, image_missing: bool = False, lines: Sequence[str] = ()) -> TrainJobDeadline:
    """Return the error for the deadline `queue`, `start`, `run` or `total`; `lines` are the last ones of the log."""
    if what == "start" and image_missing:
        return ImagePullTimeout(message, what)
    return _DEADLINES.get(what, TrainJobDeadline)(message, what, lines)


_CANNOT_START: dict[str, type[CannotStart]] = {"image": ImageCannotBePulled, "container": CommandNotFound}


def cannot_start(message: str, part: str) -> CannotStart:
    """Return the error of a job that can never start because of an `image`, a `container`, or anything else."""
    return _CANNOT_START.get(part, CannotStart)(message, "start")


def stuck_error(class_name: str, message: str) -> CannotStart | NodeLost:
    """Return the error of that class, CannotStart for an unknown one. For errors that another process has raised."""
    if class_name == NodeLost.__name__:
        return NodeLost(message)
    kinds = {kind.__name__: kind for kind in _CANNOT_START.values()}
    return kinds.get(class_name, CannotStart)(message, "start")


def verdict_on(error: BaseException) -> Verdict | None:
    """Return the verdict with which a client gives up a job; None for an error that says nothing about the job.

    A job that exceeded a deadline is resumed by a retry, as its training may only have needed more time.
    """
    kind = type(error).__name__
    if isinstance(error, Diverged):
        return Verdict(kind, error.report.describe(), kind, now(), details=error.report.as_dict())
    if isinstance(error, TrainJobFailed) and error.report is not None:
        report = error.report
        return Verdict(report.reason, report.message, kind, now(), tuple(map(_failed_pod, report.pods)))
    if isinstance(error, TrainJobDeadline):
        details = {"what": error.what}
        return Verdict(kind, str(error.args[0]), kind, now(), lines=error.lines, details=details, resumable=True)
    return None


def _failed_pod(failure: PodFailure) -> FailedPod:
    return FailedPod(
        failure.name,
        failure.step,
        failure.index,
        failure.container,
        failure.exit_code,
        failure.reason,
        failure.message,
        failure.disruption,
        failure.failed_probe,
        failure.memory_limit,
        failure.lines,
    )


_DEADLINES_OF_VERDICT: dict[str, type[TrainJobDeadline]] = {
    kind.__name__: kind
    for kind in (QueueTimeout, StartTimeout, RunTimeout, ImagePullTimeout, ImageCannotBePulled, CommandNotFound, CannotStart)
}


def error_of(trainjob: Obj, verdict: Verdict) -> TrainJobError | None:
    """Return the error of a job that was given up for a deadline or a divergence; None for a failure, whose report tells it."""
    error: TrainJobError | None = None
    if verdict.resumable:
        what, kind = str(verdict.details.get("what") or ""), _DEADLINES_OF_VERDICT.get(verdict.error, TrainJobDeadline)
        is_lost = verdict.error == NodeLost.__name__
        error = NodeLost(verdict.message) if is_lost else kind(verdict.message, what, verdict.lines)
    elif verdict.error == Diverged.__name__ and (report := _divergence(verdict)) is not None:
        error = Diverged(trainjob, report)
    if error is not None:
        error.is_verdict = True
    return error


def _divergence(verdict: Verdict) -> Divergence | None:
    try:
        return Divergence.from_dict(verdict.details)
    except TypeError:  # written by somebody else
        return None


def report_of_verdict(trainjob: Obj, verdict: Verdict) -> FailureReport:
    """Return the report of a job that was given up: its pods are gone."""
    return FailureReport(
        namespace=namespace_of(trainjob),
        name=name_of(trainjob),
        uid=uid_of(trainjob),
        reason=verdict.reason,
        message=verdict.message,
        pods=tuple(map(_pod_failure, verdict.pods)),
        lines=verdict.lines,
    )


def _pod_failure(pod: FailedPod) -> PodFailure:
    return PodFailure(
        pod.name,
        pod.step,
        pod.index,
        container=pod.container,
        exit_code=pod.exit_code,
        reason=pod.reason,
        message=pod.message,
        disruption=pod.disruption,
        failed_probe=pod.failed_probe,
        memory_limit=pod.memory_limit,
        is_gone=True,
        lines=pod.lines,
        log_patterns=patterns_in(pod.lines),
    )
