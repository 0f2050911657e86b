"""The request of a step: what it is asked to do, parsed once, whether a component, an operator or a pod does it; and the job in
which it runs.

`make edges` writes the parameters of components and operators from the requests. The job of an evaluation, or of files that only
pods see, has the settings of a training, but for its program.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

from trainwright.jobs.request.groups import Ending, Limits, Logging, Placement, Secrets
from trainwright.jobs.request.setting import Settings, names_of, setting
from trainwright.jobs.request.setting_types import GROUP, Env, Labels, Resources
from trainwright.jobs.request.train_request import TrainRequest, reject_credentials


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


@dataclass(frozen=True, kw_only=True)
class StepJob(Settings):
    """The settings of the job of a step. Credentials must be references: a literal raises LiteralSecret."""

    image: str = setting("Image of the job.", "", example="registry.example.com/trainer:1.4")
    env: Env = setting(
        'Environment variables: strings, or {"valueFrom": {"secretKeyRef": {"name": ..., "key": ...}}}. Literal credentials are '
        "rejected.",
        {},
        example='{"HF_HUB_OFFLINE": "1"}',
        place="inside",
    )
    resources_per_node: Resources = setting(
        'Resources of the pod: {"nvidia.com/gpu": "1"} for both limits and requests, or {"limits": ..., "requests": ...}.',
        {},
        example='{"nvidia.com/gpu": 1, "memory": "32Gi"}',
    )
    labels: Labels = setting("Labels of the TrainJob.", {}, example='{"team": "support"}')
    placement: Annotated[Placement, GROUP] = setting(
        "Where the pod runs: queue, topology, nodes, volumes, annotations, patches.",
        Placement(),
        example='{"queue_name": "gpus"}',
    )
    limits: Annotated[Limits, GROUP] = setting(
        "When the job has failed: deadlines, stuck jobs, restarts.", Limits(), example='{"run_timeout_seconds": 3600}'
    )
    ending: Annotated[Ending, GROUP] = setting(
        "What happens to the job at a cancellation and without a waiting step.", Ending(), example='{"on_cancel": "delete"}'
    )
    logging: Annotated[Logging, GROUP] = setting("Which logs of the job are shown.", Logging(), example='{"logs": "none"}')
    secrets: Annotated[Secrets, GROUP] = setting(
        "Names of Secrets whose keys the pod gets as variables.", Secrets(), example='{"hub_secret": "hub-token"}'
    )

    @classmethod
    def before(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Reject credentials before any other error message can contain one. Raises LiteralSecret."""
        reject_credentials(cls, values)
        return values


@dataclass(frozen=True, kw_only=True)
class FilesJob(StepJob):
    """The job in which a step of files runs, for a worker that does not mount the workspace."""

    runtime: str = setting("Runtime of the pod.", "workspace-step")


def job_request(job: StepJob) -> TrainRequest:
    """Return the request of the job in which a step runs, without its program."""
    names = names_of(StepJob) | {"runtime"}
    return TrainRequest().having(**{name: getattr(job, name) for name in names if name in job.given})
