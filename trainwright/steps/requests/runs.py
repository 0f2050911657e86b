"""What the step at the end of a run is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trainwright.jobs.request.setting import setting
from trainwright.steps.requests.step_request import StepRequest


@dataclass(frozen=True, kw_only=True)
class RetireFolder(StepRequest):
    """Record that the run of a folder has ended, and delete folders of others beyond the retention."""

    is_asked_again: ClassVar[bool] = True

    folder: str = setting("The run's folder in the workspace.")
    retention: str = setting("always, or keep=N of the finished runs.", "always")
    live: list[str] | None = setting("Folders of the jobs that run; none if that is not known.", None)
