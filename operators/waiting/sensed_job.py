"""What TrainJobSensor does in one entry of Airflow: find the job that somebody else has submitted, and wait for it or look at it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import PokeReturnValue

from trainwright.api.errors import NotFound
from trainwright.jobs import Phase, StepResult, TrainJobDeadline, TrainJobDeleted, TrainRequest, Waiting, phase_of
from trainwright.jobs.diagnosis.errors import Diverged
from trainwright.jobs.diagnosis.failure_class import end_of
from trainwright.jobs.logs.training_log import results_of
from trainwright.jobs.state.pods import read_started_from
from trainwright.jobs.state.progress import DivergenceDetector, progress_of, reported_values
from trainwright.jobs.state.run_folder import folder_of_job
from trainwright.jobs.submit.adoption import resume_if_suspended_by_us
from trainwright.jobs.wait.give_up import cancel_unwatched_job, raise_if_stopped_early
from trainwright.jobs.wait.run_step import follow_to_end
from trainwright.jobs.wait.waiting import of_waiting, wait_settings_of
from trainwright.operators import cancellation
from trainwright.operators.named_job_trigger import missing_job, resumes
from trainwright.operators.reporting.links import show_job_links
from trainwright.operators.values.airflow_api import AirflowSensorTimeout
from trainwright.operators.values.given_run import asked
from trainwright.operators.values.rendered_values import JobReference
from trainwright.operators.waiting.waiting_task import Job, WaitingTask, WaitOptions, name_unreadable_job, report_end
from trainwright.steps.ends.change_jobs import job_named
from trainwright.submission.jobs_client import JobsClient

if TYPE_CHECKING:
    from airflow.sdk import BaseSensorOperator, Context


@dataclass(frozen=True, kw_only=True)
class SensorOptions(WaitOptions):
    """As of the base class, of TrainJobSensor."""

    trainjob: str | dict[str, Any]
    namespace: str
    submission_mode: str
    on_cancel: str
    deferrable: bool


class SensedJob(WaitingTask):
    """One entry of Airflow into a sensor. Raises InvalidSettings, and ValueError for an empty name."""

    operator: BaseSensorOperator
    options: SensorOptions

    def __init__(self, operator: BaseSensorOperator, context: Context, options: SensorOptions, given: Mapping[str, Any]):
        super().__init__(operator, context, options, of_waiting(asked(TrainRequest, given)))
        self.reference = reference = JobReference.parse(options.trainjob)
        self.on_give_up, self.mode = options.on_cancel or "keep", options.submission_mode or reference.submission_mode
        self.has_results = reference.folder is None or reference.has_results is not False
        self.folder = reference.folder or ""

    def run(self) -> Any:
        """The task's result. Raises the errors of the job, TaskDeferred, and AirflowSensorTimeout."""
        cluster, trainjob = self._read_job()
        show_job_links(self.operator, self.context, trainjob["metadata"], self.options.conn_id)
        with report_end(self.printer):
            return (self._wait_in_triggerer if self.options.deferrable else self.wait_in_worker)(cluster, trainjob)

    def complete(self, event: dict[str, Any]) -> Any:
        """As of the base class. A sensor that took too long fails with Airflow's error for that, without retries."""
        if not event["namespace"]:  # the trigger could not connect
            with name_unreadable_job(event):
                event = {**event, "namespace": self._namespace_on(self.connect())}
        if event["outcome"] == "deadline" and not event.get("what"):
            with suppress(NotFound):
                self.give_up_late(*self.read_job_of(event))
            raise AirflowSensorTimeout(f"{event['message']}: {self.time_limit}")
        return super().complete(event)

    def poke(self) -> PokeReturnValue:
        """Read the job once. Raises the errors of a job that has failed or does not exist."""
        cluster, trainjob = self._read_job()
        phase = phase_of(trainjob)
        if phase is Phase.Failed:
            raise end_of(cluster, trainjob)
        raise_if_stopped_early(trainjob)
        if phase is Phase.Succeeded:
            self.judge_end(cluster, trainjob)
        elif phase is Phase.Running and self.request.limits.fail_on_divergence:
            # The job must report it itself: between two pokes nothing is remembered.
            detector = DivergenceDetector()
            detector.observe(reported_values(trainjob))
            if diverged := detector.running():
                error = Diverged(trainjob, diverged)
                error.add_outcome(cancel_unwatched_job(cluster, trainjob, self.cancel_on_error, error))
                raise error
        self.log.info("TrainJob %s: %s", trainjob["metadata"]["name"], phase)
        return PokeReturnValue(phase is Phase.Succeeded, self.read_result(cluster, trainjob) if phase.is_final else None)

    def find_job(self) -> tuple[JobsClient, Job] | None:
        cluster = self.connect()
        return job_named(cluster, self.reference.name, self._namespace_on(cluster))

    def wait_in_worker(self, cluster: JobsClient, trainjob: Job) -> Any:
        settings = wait_settings_of(self.request)
        waiting = Waiting(
            replace(settings, deadlines=replace(settings.deadlines, total=float(self.operator.timeout))),
            self.printer,
            on_signal=cancellation.on_signal_of_sensor(self.context, self.options.on_cancel),
            on_error=self.cancel_on_error,
        )
        try:
            ended = follow_to_end(cluster, trainjob, waiting)
        except TrainJobDeadline as error:  # Airflow has another error for the timeout of a sensor
            if error.what == "total":
                raise AirflowSensorTimeout(str(error)) from None
            raise
        return self.read_result(cluster, ended, self.printer.metrics)

    def read_result(self, cluster: JobsClient, trainjob: Job, metrics: dict[str, str] | None = None) -> Any:
        reference, metadata = self.reference, trainjob["metadata"]
        return self.done(
            StepResult(
                metadata["name"],
                metadata["namespace"],
                dict(progress_of(trainjob).metrics) if metrics is None else metrics,
                results_of(cluster, trainjob) if reference.has_results is not False else None,
                folder_of_job(trainjob) if reference.folder is None else reference.folder,
                read_started_from(cluster, trainjob),
            )
        )

    @property
    def time_limit(self) -> str:
        limit, timeout = self.operator.execution_timeout, self.operator.timeout
        is_shorter = limit is not None and limit.total_seconds() < timeout
        return super().time_limit if is_shorter else f"the timeout of its sensor is {timeout:g} s"

    def _wait_in_triggerer(self, cluster: JobsClient, trainjob: Job) -> Any:
        """The result of a job that has already succeeded. Raises the failure of one that has failed; else TaskDeferred."""
        phase, sensor = phase_of(trainjob), self.operator
        if phase is Phase.Succeeded:  # a trigger would only fire at once
            self.judge_end(cluster, trainjob)
            return self.read_result(cluster, trainjob)
        if phase is Phase.Failed:
            raise end_of(cluster, trainjob)
        seconds = min(sensor.timeout, sensor.execution_timeout.total_seconds() if sensor.execution_timeout else sensor.timeout)
        on_cancel = self.options.on_cancel or "suspend"
        self.defer(trainjob, until=time.time() + seconds, mode=cluster.mode, on_cancel=on_cancel, on_clear="keep")

    def _read_job(self) -> tuple[JobsClient, Job]:
        """The cluster in the job's mode, and the job. Raises TrainJobDeleted if there is none, or another one of that name.

        A job that the previous try of this sensor has suspended goes on. With `keep` nothing of the job is ever changed.
        """
        connected = self.connect()
        name, namespace, uid = self.reference.name, self._namespace_on(connected), self.reference.uid
        found = job_named(connected, name, namespace)
        if found is None:
            raise TrainJobDeleted(missing_job(namespace, name))
        cluster, trainjob = found
        if uid and uid != trainjob["metadata"]["uid"]:
            raise TrainJobDeleted(f"TrainJob {namespace}/{name} was deleted, and created again since")
        if resumes(self.options.on_cancel, int(self.context["ti"].try_number)):
            trainjob = resume_if_suspended_by_us(cluster, trainjob)
        return cluster, trainjob

    def _namespace_on(self, cluster: JobsClient) -> str:
        return self.options.namespace or self.reference.namespace or str(cluster.default_namespace)
