"""What can become of a TrainJob that somebody waits for, as errors that say what happened, where, and what was seen last."""

from __future__ import annotations

from trainwright.api.objects import Obj


class TrainJobError(Exception):
    """Base of the errors about one TrainJob."""


class TrainJobFailed(TrainJobError):
    """The job failed. The message is the whole report: condition, pods, exit codes, last log lines."""

    def __init__(self, message: str, trainjob: Obj):
        super().__init__(message)
        self.trainjob = trainjob


class TrainJobDeleted(TrainJobError):
    """The job was deleted while somebody waited for it."""


class TrainJobDeadline(TrainJobError):
    """A deadline passed: `what` is `queue`, `start` or `run`. The job still exists; the caller decides what becomes of it."""

    def __init__(self, message: str, what: str):
        super().__init__(message)
        self.what = what


class TrainJobNameTaken(TrainJobError):
    """A TrainJob of that name exists, but is somebody else's or was made from another request."""
