"""What the steps at the beginning and the end of a run are asked."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BeforeValidator

from trainwright.steps.requests.step_request import Count, StepRequest, parameter


class StartRun(StepRequest):
    """Create the workspace of a run if necessary, before any step mounts it."""

    workspace: str = parameter(
        "pvc://CLAIM[/FOLDER], the name of a claim, or pvc://CLAIM?size=20Gi[&class=&access=&retain=] to create it.",
        example="pvc://training?size=50Gi",
    )
    num_nodes: Annotated[Count, BeforeValidator(lambda value: value or 1)] = parameter(
        "Number of nodes that share a new claim.", 1
    )


class RetireFolder(StepRequest):
    """Record that the run of a folder has ended, and delete folders of others beyond the retention."""

    is_asked_again: ClassVar[bool] = True

    folder: str = parameter("The run's folder in the workspace.")
    retention: str = parameter("always, or keep=N of the finished runs.", "always")
    live: list[str] | None = parameter("Folders of the jobs that run; none if that is not known.", None)
