"""What can become of a TrainJob that somebody waits for, as errors that say what happened, where, and what was seen last.

`retryable` says whether the same request can be expected to get further in another try. It is advice: nothing here retries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.api.objects import Obj

if TYPE_CHECKING:
    from trainwright.jobs.report import FailureReport


class TrainJobError(Exception):
    """Base of the errors about one TrainJob."""

    retryable = False


class TrainJobFailed(TrainJobError):
    """The job failed. The message is the whole report; `report` is the same as data, None where nobody could make one."""

    def __init__(self, message: str, trainjob: Obj, report: FailureReport | None = None):
        super().__init__(message)
        self.trainjob = trainjob
        self.report = report


class StepFailed(TrainJobFailed):
    """A container of one of its steps ended with an error. Retryable where the network or the rendezvous was at fault."""

    def __init__(self, message: str, trainjob: Obj, report: FailureReport | None = None):
        super().__init__(message, trainjob, report)
        self.retryable = report is not None and report.is_passing


class OutOfMemory(StepFailed):
    """A container, or a GPU, had too little memory: the same request will end the same way."""

    def __init__(self, message: str, trainjob: Obj, report: FailureReport | None = None):
        super().__init__(message, trainjob, report)
        self.retryable = False


class Preempted(TrainJobFailed):
    """A pod was taken away: preempted, evicted from its node, or lost with it. Nothing is wrong with the request."""

    retryable = True


class TrainJobDeleted(TrainJobError):
    """The job was deleted while somebody waited for it."""


class JobDeleted(TrainJobDeleted):
    """As TrainJobDeleted; the name that is raised. The next try of the step makes the job anew."""

    retryable = True


class TrainJobDeadline(TrainJobError):
    """A deadline passed: `what` is `queue`, `start`, `run` or `total`. The job still exists; the caller decides what becomes of it."""

    retryable = True

    def __init__(self, message: str, what: str):
        super().__init__(message)
        self.what = what


class QueueTimeout(TrainJobDeadline):
    """It was queued or suspended for too long."""


class StartTimeout(TrainJobDeadline):
    """Its nodes did not train in time: the message says what its pods waited for."""


class RunTimeout(TrainJobDeadline):
    """It trained for too long. The next try goes on from its last whole checkpoint."""


class DeadlineExceeded(RunTimeout, TrainJobFailed):
    """The cluster itself ended the job at its activeDeadlineSeconds: a RunTimeout of a job that has failed."""

    def __init__(self, message: str, trainjob: Obj, report: FailureReport | None = None):
        TrainJobFailed.__init__(self, message, trainjob, report)
        self.what = "run"


class ImagePullFailed(TrainJobError):
    """An image could not be pulled. Comes as a StartTimeout of a job that still tries, or as a TrainJobFailed."""

    retryable = False


class StartTimeoutWithoutImage(ImagePullFailed, StartTimeout):
    """The start deadline passed while an image could not be pulled."""


class FailedWithoutImage(ImagePullFailed, TrainJobFailed):
    """The job failed while an image could not be pulled."""


class TrainJobNameTaken(TrainJobError):
    """A TrainJob of that name exists, but is somebody else's or was made from another request."""


class RunFolderTaken(TrainJobNameTaken):
    """Another TrainJob writes to the folder of this run. `retryable` where both were submitted at the same time."""


class WorkspaceUnfit(TrainJobError):
    """The claim of a workspace exists, but is not what is asked for. `retryable` while it is only on its way out."""

    def __init__(self, message: str, *, retryable: bool = False):
        super().__init__(message)
        self.retryable = retryable


_DEADLINES: dict[str, type[TrainJobDeadline]] = {"queue": QueueTimeout, "start": StartTimeout, "run": RunTimeout}


def deadline_passed(message: str, what: str, *, without_image: bool = False) -> TrainJobDeadline:
    """The error of the deadline `queue`, `start`, `run` or `total`."""
    if what == "start" and without_image:
        return StartTimeoutWithoutImage(message, what)
    return _DEADLINES.get(what, TrainJobDeadline)(message, what)
