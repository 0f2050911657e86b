"""A training step from its request to its result, as one call: what a KFP component, an Airflow task and a program all do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.cancel import Stopping, stop_job
from trainwright.jobs.clock import Deadlines
from trainwright.jobs.identity import Identity
from trainwright.jobs.live_logs import Live
from trainwright.jobs.progress import progress_of
from trainwright.jobs.request import TrainRequest
from trainwright.jobs.results import results_of
from trainwright.jobs.run import Leave, run_to_end
from trainwright.jobs.submit import LatestCheckpoint
from trainwright.jobs.telling import Teller


@dataclass(frozen=True)
class StepResult:
    """`metrics` are the last values that the training reported, `results` what it returned or left in results.json (or None),
    `folder` the run's folder of the workspace, empty without one."""

    trainjob: str
    namespace: str
    metrics: dict[str, str] = field(default_factory=dict)
    results: Any = None
    folder: str = ""

    def results_as_object(self) -> dict[str, Any]:
        """`results` where an object is expected: any other value under the key `value`, none as an empty object."""
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
        }


def run_step(
    cluster: Cluster,
    request: TrainRequest,
    identity: Identity,
    namespace: str,
    *,
    latest_checkpoint: LatestCheckpoint | None = None,
    was: Sequence[Identity] = (),
    teller: Teller | None = None,
    on_signal: Leave | None = None,
) -> StepResult:
    """Submit or adopt the TrainJob of this step and wait until it has succeeded, as the request says.

    `on_signal` stands in for the request's `on_cancel` when the process is asked to end. Raises as `run_to_end`.
    """
    teller = teller or Teller(lambda _line: None)
    stop = leaving(request)
    trainjob = run_to_end(
        cluster,
        request,
        identity,
        namespace,
        latest_checkpoint=latest_checkpoint,
        was=was,
        preemption_budget=request.preemption_budget,
        deadlines=deadlines_of(request),
        tell=teller,
        logs=Live.parse(request.logs, request.log_bytes),
        on_signal=on_signal or stop,
        on_error=stop,
    )
    return result_of(cluster, trainjob, request, identity, dict((teller.progress or progress_of(trainjob)).metrics))


def result_of(
    cluster: Cluster, trainjob: Obj, request: TrainRequest, identity: Identity, metrics: dict[str, str] | None = None
) -> StepResult:
    """The result of a job that has succeeded; only one that runs a function or code can have `results`."""
    launched = request.func is not None or bool(request.code)
    return StepResult(
        name_of(trainjob),
        namespace_of(trainjob),
        metrics if metrics is not None else dict(progress_of(trainjob).metrics),
        results_of(cluster, trainjob) if launched else None,
        identity.folder if request.workspace else "",
    )


def deadlines_of(request: TrainRequest) -> Deadlines:
    return Deadlines(queue=request.queue_timeout_seconds, start=request.start_timeout_seconds, run=request.run_timeout_seconds)


def leaving(request: TrainRequest) -> Leave:
    """What is done with the job when nobody waits for it any more, by `on_cancel`."""
    how = Stopping(request.on_cancel)
    return lambda cluster, trainjob: stop_job(cluster, trainjob, how)
