"""What the step at the end of a run is asked."""

from __future__ import annotations

from typing import ClassVar

from trainwright.steps.requests.step_request import StepRequest, parameter


class RetireFolder(StepRequest):
    """Record that the run of a folder has ended, and delete folders of others beyond the retention."""

    is_asked_again: ClassVar[bool] = True

    folder: str = parameter("The run's folder in the workspace.")
    retention: str = parameter("always, or keep=N of the finished runs.", "always")
    live: list[str] | None = parameter("Folders of the jobs that run; none if that is not known.", None)
