"""The life of a TrainJob as its client sees it: submit or adopt, follow, wait, tell why it failed, cancel."""

from trainwright.api.errors import Forbidden
from trainwright.api.phase import Phase, phase_of
from trainwright.jobs.cancel import delete_job, suspend_job
from trainwright.jobs.clock import Deadlines
from trainwright.jobs.compatibility import IncompatibleRuntime
from trainwright.jobs.errors import (
    ImagePullFailed,
    JobDeleted,
    OutOfMemory,
    Preempted,
    QueueTimeout,
    RunTimeout,
    StartTimeout,
    StepFailed,
    TrainJobDeadline,
    TrainJobDeleted,
    TrainJobError,
    TrainJobFailed,
    TrainJobNameTaken,
    WorkspaceUnfit,
)
from trainwright.jobs.happenings import Happening
from trainwright.jobs.identity import Identity
from trainwright.jobs.live_logs import Live
from trainwright.jobs.manifest import trainjob_manifest
from trainwright.jobs.progress import Progress
from trainwright.jobs.report import FailureReport
from trainwright.jobs.request import TrainRequest
from trainwright.jobs.submit import Submitted, submit_or_adopt
from trainwright.jobs.telling import Teller
from trainwright.jobs.wait import wait_for
from trainwright.runtimes import RuntimeNotFound

__all__ = [
    "Deadlines",
    "FailureReport",
    "Forbidden",
    "Happening",
    "Identity",
    "ImagePullFailed",
    "IncompatibleRuntime",
    "JobDeleted",
    "Live",
    "OutOfMemory",
    "Phase",
    "Preempted",
    "Progress",
    "QueueTimeout",
    "RunTimeout",
    "RuntimeNotFound",
    "StartTimeout",
    "StepFailed",
    "Submitted",
    "Teller",
    "TrainJobDeadline",
    "TrainJobDeleted",
    "TrainJobError",
    "TrainJobFailed",
    "TrainJobNameTaken",
    "TrainRequest",
    "WorkspaceUnfit",
    "delete_job",
    "phase_of",
    "submit_or_adopt",
    "suspend_job",
    "trainjob_manifest",
    "wait_for",
]
