"""What a task was asked: its settings, typed at this door. Imported when a task runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.request.setting import Settings
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.typed_parameters import given_parameters
from trainwright.operators.groups import OF_PIPELINES
from trainwright.steps.requests import Run
from trainwright.submission.jobs_client import JobsClient

S = TypeVar("S", bound=Settings)


def asked(cls: type[S], given: Mapping[str, Any], rest: S | None = None) -> S:
    """Return the request of a task; `rest` are the settings that its run has for it. Raises InvalidSettings, LiteralSecret."""
    return cls.parse(given_parameters(cls, given), rest=rest)


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


def asked_training(given: Mapping[str, Any], run: Run | None) -> TrainRequest:
    """Return the request of a training task, with the settings and the workspace that its run has for it, if it has one.

    Raises InvalidSettings, LiteralSecret.
    """
    apart = TrainRequest.parse_some(given_parameters(TrainRequest, given))
    request = apart if run is None else run.training_with(apart)
    refuse_settings_of_pipelines(request)
    return request.checked()


def refuse_settings_of_pipelines(request: TrainRequest, path: str = "") -> None:
    """Raise InvalidSettings for a setting that only Kubeflow Pipelines heeds."""
    if request.limits.job_retries:
        raise InvalidSettings([(f"{path}limits.job_retries", OF_PIPELINES["job_retries"])])
    if "tie_to_run" in request.ending.given:
        raise InvalidSettings([(f"{path}ending.tie_to_run", OF_PIPELINES["tie_to_run"])])
