"""The request of a step: what it is asked to do, parsed once, whether a component, an operator or a pod does it.

`make edges` writes the parameters of components and operators from the requests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from trainwright.jobs.request.setting import Settings


class StepRun(NamedTuple):
    """The run that a step is part of: who runs it (`kfp` or `airflow/DAG`), its id, and the number of a mapped task or a trial."""

    owner: str
    run_id: str
    map_index: int = -1


@dataclass(frozen=True, kw_only=True)
class StepRequest(Settings):
    """The base of all requests. An empty text of a number, a flag or a structure stands for its default."""

    is_asked_again: ClassVar[bool] = False
    """Whether its values differ from call to call within one task, so that each call has a job apart."""

    @classmethod
    def step_name(cls) -> str:
        """The name of the step, as `export-checkpoint`: part of the names of its jobs."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()
