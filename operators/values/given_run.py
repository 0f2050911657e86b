"""What a task was asked: its settings, typed at this door, and the run that it is part of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from trainwright.operators.groups import OF_PIPELINES

if TYPE_CHECKING:
    from trainwright.jobs.request.setting import Settings
    from trainwright.jobs.request.train_request import TrainRequest
    from trainwright.steps.requests import Run
    from trainwright.submission.jobs_client import JobsClient


@dataclass(frozen=True)
class Asked:
    """The settings of a training task, rendered and typed, and the run that it is part of: read once for each entry of Airflow."""

    request: TrainRequest
    run: Run

    @property
    def submission_mode(self) -> str:
        return self.request.placement.submission_mode or self.run.submission_mode

    def namespace(self, cluster: JobsClient) -> str:
        """The namespace of the TrainJob."""
        return self.run.namespace or self.request.namespace or cluster.default_namespace


S = TypeVar("S", bound="Settings")


def asked(cls: type[S], given: Mapping[str, Any], rest: S | None = None) -> S:
    """Return the request of a task; `rest` are the settings that its run has for it. Raises InvalidSettings, LiteralSecret."""
    from trainwright.jobs.request.typed_parameters import given_parameters

    return cls.parse(given_parameters(cls, given), rest=rest)


def refuse_settings_of_pipelines(request: TrainRequest, path: str = "") -> None:
    """Raise InvalidSettings for a setting that only Kubeflow Pipelines heeds."""
    from trainwright.jobs.request.invalid_settings import InvalidSettings

    if request.limits.job_retries:
        raise InvalidSettings([(f"{path}limits.job_retries", OF_PIPELINES["job_retries"])])
    if "tie_to_run" in request.ending.given:
        raise InvalidSettings([(f"{path}ending.tie_to_run", OF_PIPELINES["tie_to_run"])])
