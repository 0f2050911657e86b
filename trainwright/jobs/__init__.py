"""The life of a TrainJob as its client sees it: submit or adopt, follow, wait, report why it failed, cancel.

Loaded lazily (PEP 562): naming one of these modules must not cost the import of all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwright.api.errors import Forbidden as Forbidden
    from trainwright.api.phase import Phase as Phase
    from trainwright.api.phase import phase_of as phase_of
    from trainwright.jobs.cancel import delete_job as delete_job
    from trainwright.jobs.cancel import suspend_job as suspend_job
    from trainwright.jobs.clock import Deadlines as Deadlines
    from trainwright.jobs.compatibility import IncompatibleRuntime as IncompatibleRuntime
    from trainwright.jobs.errors import ImagePullFailed as ImagePullFailed
    from trainwright.jobs.errors import JobDeleted as JobDeleted
    from trainwright.jobs.errors import OutOfMemory as OutOfMemory
    from trainwright.jobs.errors import Preempted as Preempted
    from trainwright.jobs.errors import QueueTimeout as QueueTimeout
    from trainwright.jobs.errors import RunFolderTaken as RunFolderTaken
    from trainwright.jobs.errors import RunTimeout as RunTimeout
    from trainwright.jobs.errors import StartTimeout as StartTimeout
    from trainwright.jobs.errors import StepFailed as StepFailed
    from trainwright.jobs.errors import TrainJobDeadline as TrainJobDeadline
    from trainwright.jobs.errors import TrainJobDeleted as TrainJobDeleted
    from trainwright.jobs.errors import TrainJobError as TrainJobError
    from trainwright.jobs.errors import TrainJobFailed as TrainJobFailed
    from trainwright.jobs.errors import TrainJobNameTaken as TrainJobNameTaken
    from trainwright.jobs.errors import WorkspaceUnfit as WorkspaceUnfit
    from trainwright.jobs.happenings import Happening as Happening
    from trainwright.jobs.identity import Identity as Identity
    from trainwright.jobs.live_logs import Live as Live
    from trainwright.jobs.manifest import trainjob_manifest as trainjob_manifest
    from trainwright.jobs.progress import Progress as Progress
    from trainwright.jobs.report import FailureReport as FailureReport
    from trainwright.jobs.request import TrainRequest as TrainRequest
    from trainwright.jobs.step import StepResult as StepResult
    from trainwright.jobs.step import run_step as run_step
    from trainwright.jobs.submit import Submitted as Submitted
    from trainwright.jobs.submit import submit_or_adopt as submit_or_adopt
    from trainwright.jobs.telling import Teller as Teller
    from trainwright.jobs.wait import wait_for as wait_for
    from trainwright.runtimes import RuntimeNotFound as RuntimeNotFound

_WHERE = {
    "Deadlines": "trainwright.jobs.clock",
    "FailureReport": "trainwright.jobs.report",
    "Forbidden": "trainwright.api.errors",
    "Happening": "trainwright.jobs.happenings",
    "Identity": "trainwright.jobs.identity",
    "ImagePullFailed": "trainwright.jobs.errors",
    "IncompatibleRuntime": "trainwright.jobs.compatibility",
    "JobDeleted": "trainwright.jobs.errors",
    "Live": "trainwright.jobs.live_logs",
    "OutOfMemory": "trainwright.jobs.errors",
    "Phase": "trainwright.api.phase",
    "Preempted": "trainwright.jobs.errors",
    "Progress": "trainwright.jobs.progress",
    "QueueTimeout": "trainwright.jobs.errors",
    "RunFolderTaken": "trainwright.jobs.errors",
    "RunTimeout": "trainwright.jobs.errors",
    "RuntimeNotFound": "trainwright.runtimes",
    "StartTimeout": "trainwright.jobs.errors",
    "StepFailed": "trainwright.jobs.errors",
    "StepResult": "trainwright.jobs.step",
    "Submitted": "trainwright.jobs.submit",
    "Teller": "trainwright.jobs.telling",
    "TrainJobDeadline": "trainwright.jobs.errors",
    "TrainJobDeleted": "trainwright.jobs.errors",
    "TrainJobError": "trainwright.jobs.errors",
    "TrainJobFailed": "trainwright.jobs.errors",
    "TrainJobNameTaken": "trainwright.jobs.errors",
    "TrainRequest": "trainwright.jobs.request",
    "WorkspaceUnfit": "trainwright.jobs.errors",
    "delete_job": "trainwright.jobs.cancel",
    "phase_of": "trainwright.api.phase",
    "run_step": "trainwright.jobs.step",
    "submit_or_adopt": "trainwright.jobs.submit",
    "suspend_job": "trainwright.jobs.cancel",
    "trainjob_manifest": "trainwright.jobs.manifest",
    "wait_for": "trainwright.jobs.wait",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
