"""Runs a training step from its request to its result in one call, for KFP components, Airflow tasks and programs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.logs.training_log import results_of
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.pods import read_started_from
from trainwright.jobs.state.progress import progress_of
from trainwright.jobs.state.run_folder import folder_of_job
from trainwright.jobs.state.usage import NO_USAGE, Usage, saved_hours
from trainwright.jobs.submit.submission import Submission
from trainwright.jobs.wait.job_events import StartedFrom
from trainwright.jobs.wait.run_to_end import run_to_end
from trainwright.jobs.wait.waiting import Waiting


@dataclass(frozen=True)
class StepResult:
    """`metrics` are the last values that the training reported, `results` its return value or results.json (or None),
    `folder` the run's folder on the workspace, empty without one, `started_from` what the training started from: nothing, a
    checkpoint of its own, an export and whose, or why that is not known; empty for a job that has not ended. `usage` is what
    the attempts used that were awaited here."""

    trainjob: str
    namespace: str
    metrics: dict[str, str] = field(default_factory=dict)
    results: Any = None
    folder: str = ""
    started_from: str = ""
    usage: Usage = NO_USAGE

    @property
    def saved_hours(self) -> float:
        """Hours of training that need not be repeated, because the job resumed."""
        return saved_hours(self.started_from)

    def usage_as_object(self) -> dict[str, Any]:
        """Return `usage` and `saved_hours` as a JSON object; empty if nothing is known."""
        saved = {"saved_hours": self.saved_hours} if self.saved_hours else {}
        return {**(self.usage.as_dict() if self.usage != NO_USAGE else {}), **saved}

    def results_as_object(self) -> dict[str, Any]:
        """Return `results` as an object: any other value under the key `value`, None as an empty object."""
        if self.results is None or isinstance(self.results, dict):
            return self.results or {}
        return {"value": self.results}

    def as_dict(self) -> dict[str, Any]:
        return {
            "trainjob": self.trainjob,
            "namespace": self.namespace,
            "metrics": self.metrics,
            "results": self.results,
            "folder": self.folder,
            "started_from": self.started_from,
            "usage": self.usage_as_object(),
        }


def run_step(submission: Submission, waiting: Waiting | None = None) -> StepResult:
    """Submit or adopt the TrainJob of this step and wait until it has succeeded, by default as its request says.

    Raises the errors of `run_to_end`.
    """
    waiting = waiting or Waiting.of(submission.request)
    trainjob = run_to_end(submission, waiting)
    printer = waiting.printer
    metrics = dict((printer.progress or progress_of(trainjob)).metrics)
    result = replace(result_of(submission.cluster, trainjob, submission.request, metrics), usage=printer.usage)
    printer((StartedFrom(result.started_from),))
    return result


def result_of(cluster: Cluster, trainjob: Obj, request: TrainRequest, metrics: dict[str, str] | None = None) -> StepResult:
    """Return the result of a job that has succeeded; only a job that runs a function or code has `results`."""
    has_launcher = request.func is not None or bool(request.code)
    return StepResult(
        name_of(trainjob),
        namespace_of(trainjob),
        metrics if metrics is not None else dict(progress_of(trainjob).metrics),
        results_of(cluster, trainjob) if has_launcher else None,
        folder_of_job(trainjob),
        read_started_from(cluster, trainjob),
    )
