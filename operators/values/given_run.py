"""What a task was asked: its settings, typed at this door, and the run that it is part of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

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


def run_given(run: Any, **given: Any) -> Run:
    """Return the run of a task: what StartRunOperator has returned, as an object or its JSON, and what it was given apart, which wins.

    Raises InvalidSettings.
    """
    from trainwright.jobs.request.invalid_settings import within
    from trainwright.jobs.request.setting_values import parse_group
    from trainwright.steps.requests import Run

    mine = Run.parse_some({name: value for name, value in given.items() if value not in ("", None)})
    with within("run"):
        return mine.over(Run.parse_some(parse_group(run) or {}))


def refuse_settings_of_pipelines(request: TrainRequest, path: str = "") -> None:
    """Raise InvalidSettings for a setting that only Kubeflow Pipelines heeds."""
    from trainwright.jobs.request.invalid_settings import InvalidSettings

    if request.limits.job_retries:
        raise InvalidSettings([(f"{path}limits.job_retries", "for Kubeflow Pipelines; set retries of the task instead")])
    if "tie_to_run" in request.ending.given:
        raise InvalidSettings(
            [(f"{path}ending.tie_to_run", "for Kubeflow Pipelines: a run of Airflow has no object in the cluster")]
        )
