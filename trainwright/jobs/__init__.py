"""Client-side lifecycle of a TrainJob: submit or adopt, follow logs, wait, diagnose failures, cancel.

Names are loaded lazily (PEP 562), so that importing one of them does not import every module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwright.api.errors import Forbidden as Forbidden
    from trainwright.api.phase import Phase as Phase
    from trainwright.api.phase import phase_of as phase_of
    from trainwright.jobs.diagnosis.errors import CannotRun as CannotRun
    from trainwright.jobs.diagnosis.errors import ImagePullFailed as ImagePullFailed
    from trainwright.jobs.diagnosis.errors import OutOfMemory as OutOfMemory
    from trainwright.jobs.diagnosis.errors import Preempted as Preempted
    from trainwright.jobs.diagnosis.errors import QueueTimeout as QueueTimeout
    from trainwright.jobs.diagnosis.errors import RunFolderTaken as RunFolderTaken
    from trainwright.jobs.diagnosis.errors import RunTimeout as RunTimeout
    from trainwright.jobs.diagnosis.errors import StartTimeout as StartTimeout
    from trainwright.jobs.diagnosis.errors import StepFailed as StepFailed
    from trainwright.jobs.diagnosis.errors import TrainJobDeadline as TrainJobDeadline
    from trainwright.jobs.diagnosis.errors import TrainJobDeleted as TrainJobDeleted
    from trainwright.jobs.diagnosis.errors import TrainJobError as TrainJobError
    from trainwright.jobs.diagnosis.errors import TrainJobFailed as TrainJobFailed
    from trainwright.jobs.diagnosis.errors import TrainJobNameTaken as TrainJobNameTaken
    from trainwright.jobs.diagnosis.errors import WorkspaceMismatch as WorkspaceMismatch
    from trainwright.jobs.diagnosis.failure_report import FailureReport as FailureReport
    from trainwright.jobs.logs.log_options import LogStreamOptions as LogStreamOptions
    from trainwright.jobs.manifest.resolved_request import ResolvedRequest as ResolvedRequest
    from trainwright.jobs.manifest.trainjob_manifest import trainjob_manifest as trainjob_manifest
    from trainwright.jobs.request.train_request import TrainRequest as TrainRequest
    from trainwright.jobs.state.cancel import delete_job as delete_job
    from trainwright.jobs.state.cancel import suspend_job as suspend_job
    from trainwright.jobs.state.deadline_timer import Deadlines as Deadlines
    from trainwright.jobs.state.identity import Identity as Identity
    from trainwright.jobs.state.progress import Progress as Progress
    from trainwright.jobs.submit.resolve import IncompatibleRuntime as IncompatibleRuntime
    from trainwright.jobs.submit.resolve import InvalidRequest as InvalidRequest
    from trainwright.jobs.submit.resolve import resolve as resolve
    from trainwright.jobs.submit.submission import Submission as Submission
    from trainwright.jobs.submit.submit_or_adopt import Submitted as Submitted
    from trainwright.jobs.submit.submit_or_adopt import submit_or_adopt as submit_or_adopt
    from trainwright.jobs.wait.follow_job import wait_for as wait_for
    from trainwright.jobs.wait.job_events import JobEvent as JobEvent
    from trainwright.jobs.wait.run_step import StepResult as StepResult
    from trainwright.jobs.wait.run_step import run_step as run_step
    from trainwright.jobs.wait.waiting import EventPrinter as EventPrinter
    from trainwright.jobs.wait.waiting import Waiting as Waiting
    from trainwright.runtimes import RuntimeNotFound as RuntimeNotFound

_WHERE = {
    "CannotRun": "trainwright.jobs.diagnosis.errors",
    "Deadlines": "trainwright.jobs.state.deadline_timer",
    "EventPrinter": "trainwright.jobs.wait.waiting",
    "FailureReport": "trainwright.jobs.diagnosis.failure_report",
    "Forbidden": "trainwright.api.errors",
    "Identity": "trainwright.jobs.state.identity",
    "ImagePullFailed": "trainwright.jobs.diagnosis.errors",
    "IncompatibleRuntime": "trainwright.jobs.submit.resolve",
    "InvalidRequest": "trainwright.jobs.submit.resolve",
    "JobEvent": "trainwright.jobs.wait.job_events",
    "LogStreamOptions": "trainwright.jobs.logs.log_options",
    "OutOfMemory": "trainwright.jobs.diagnosis.errors",
    "Phase": "trainwright.api.phase",
    "Preempted": "trainwright.jobs.diagnosis.errors",
    "Progress": "trainwright.jobs.state.progress",
    "QueueTimeout": "trainwright.jobs.diagnosis.errors",
    "ResolvedRequest": "trainwright.jobs.manifest.resolved_request",
    "RunFolderTaken": "trainwright.jobs.diagnosis.errors",
    "RunTimeout": "trainwright.jobs.diagnosis.errors",
    "RuntimeNotFound": "trainwright.runtimes",
    "StartTimeout": "trainwright.jobs.diagnosis.errors",
    "StepFailed": "trainwright.jobs.diagnosis.errors",
    "StepResult": "trainwright.jobs.wait.run_step",
    "Submission": "trainwright.jobs.submit.submission",
    "Submitted": "trainwright.jobs.submit.submit_or_adopt",
    "TrainJobDeadline": "trainwright.jobs.diagnosis.errors",
    "TrainJobDeleted": "trainwright.jobs.diagnosis.errors",
    "TrainJobError": "trainwright.jobs.diagnosis.errors",
    "TrainJobFailed": "trainwright.jobs.diagnosis.errors",
    "TrainJobNameTaken": "trainwright.jobs.diagnosis.errors",
    "TrainRequest": "trainwright.jobs.request.train_request",
    "Waiting": "trainwright.jobs.wait.waiting",
    "WorkspaceMismatch": "trainwright.jobs.diagnosis.errors",
    "delete_job": "trainwright.jobs.state.cancel",
    "phase_of": "trainwright.api.phase",
    "resolve": "trainwright.jobs.submit.resolve",
    "run_step": "trainwright.jobs.wait.run_step",
    "submit_or_adopt": "trainwright.jobs.submit.submit_or_adopt",
    "suspend_job": "trainwright.jobs.state.cancel",
    "trainjob_manifest": "trainwright.jobs.manifest.trainjob_manifest",
    "wait_for": "trainwright.jobs.wait.follow_job",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
