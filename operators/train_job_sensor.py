"""Wait for a TrainJob that another task, or anybody else, has submitted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.triggers.base import StartTriggerArgs

from trainwright.operators import cancellation
from trainwright.operators.deferral.deferral_options import deferral_options
from trainwright.operators.errors import fail_fast
from trainwright.operators.groups import Deferral, Limits, Logging, check_groups
from trainwright.operators.jobs.job_outcome import WaitsForTrainJob
from trainwright.operators.jobs.job_reference import JobReference
from trainwright.operators.jobs.named_job_trigger import NamedTrainJobTrigger, missing_job, resumes
from trainwright.operators.jobs.unreadable_job import name_unreadable_job
from trainwright.operators.reporting.job_report import report_end
from trainwright.operators.reporting.links import LogsLink, TrainJobLink, begin_links, show_job_links
from trainwright.operators.values.airflow_api import AirflowFailException, AirflowSensorTimeout, AirflowSkipException, conf

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainwright.jobs import TrainRequest
    from trainwright.submission.jobs_client import JobsClient


class TrainJobSensor(WaitsForTrainJob, BaseSensorOperator):
    """Wait until a TrainJob has succeeded, with its progress and log in the task's log.

    The job is left alone, unless a user ends the sensor: it is then suspended. `on_cancel="keep"` keeps it running.

    Its failure fails the task with the job's report, as in TrainJobOperator, and without retries if waiting again cannot succeed.
    A preempted job fails too: only the task that has submitted it submits the next one. If the job does not exist, the task fails.
    All time is counted from the start of the sensor. A deferred sensor for a plain name, without templates, starts in the triggerer
    and needs a worker only for its result. In mode="reschedule" the job is read every poke_interval seconds, without its log.

    :param trainjob: name of the TrainJob, or the XCom of a TrainJobOperator that does not wait.
    :param namespace: namespace of the TrainJob; defaults to that in the XCom, else the connection's.
    :param submission_mode: auto, trainjob or jobset; defaults to that in the XCom, else the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes`; None uses the environment.
    :param limits: When a job has failed, and how often it may begin again: deadlines, stuck and diverged jobs, restarts, budgets.
        Its settings: queue_timeout_seconds, start_timeout_seconds, run_timeout_seconds, lost_node_timeout_seconds, fail_if_stuck,
        fail_on_divergence, restarts, preemption_budget, job_retries.
    :param logging: Which logs of the job are shown. Its settings: logs, log_bytes.
    :param on_cancel: what to do with the job when a user ends the sensor, or it exceeds a deadline or gives up: keep, suspend or
        delete it. Empty: suspend it in the first case, keep it in the others.
    :param deferrable: wait in the triggerer; defaults to [operators] default_deferrable.
    :param deferral: how a deferred task waits: log_poll_interval, min_defer_seconds.
    :param kwargs: as in all sensors, such as timeout (seconds for the whole wait, a week by default), mode and soft_fail.
    :return: trainjob, namespace, metrics, results, folder, as TrainJobOperator returns them.
    """

    template_fields = (
        # Written by `make edges` from TrainRequest.
        *("limits", "logging"),
        # End of what `make edges` writes.
        "trainjob",
        "namespace",
        "submission_mode",
        "conn_id",
        "on_cancel",
    )
    operator_extra_links = (TrainJobLink(), LogsLink())

    def __init__(
        self,
        *,
        trainjob: str | dict[str, Any],
        namespace: str = "",
        submission_mode: str = "",
        conn_id: str | None = None,
        # Written by `make edges` from TrainRequest.
        limits: Limits | str | None = None,
        logging: Logging | str | None = None,
        # End of what `make edges` writes.
        on_cancel: str = "",
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        deferral: Deferral | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.trainjob, self.namespace = trainjob, namespace
        self.submission_mode, self.conn_id, self.on_cancel = submission_mode, conn_id, on_cancel
        # Written by `make edges` from TrainRequest.
        self.limits = limits
        self.logging = logging
        # End of what `make edges` writes.
        self.deferrable = deferrable
        self.log_poll_interval, self.min_defer_seconds = deferral_options(deferral)
        check_groups(deferral=deferral, limits=limits, logging=logging)
        if on_cancel and "{{" not in on_cancel and on_cancel not in ("suspend", "delete", "keep"):
            raise ValueError(f"on_cancel={on_cancel!r}: expected suspend, delete or keep")
        if deferrable and self._can_start_in_triggerer():
            self.start_from_trigger, self.start_trigger_args = True, self._start_trigger_args()

    @fail_fast()
    def execute(self, context: Context) -> Any:
        if not self.deferrable and self.reschedule:
            return super().execute(context)
        begin_links(self)
        with self._skip_softly():
            cluster, trainjob = self._read_job(context)
            show_job_links(self, context, trainjob["metadata"])
            with report_end(self):
                wait = self._defer if self.deferrable else self._wait_in_worker
                return wait(context, cluster, trainjob)

    @fail_fast()
    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """As in TrainJobOperator. A sensor that took too long fails with Airflow's error for that, without retries."""
        with self._skip_softly():
            if not event["namespace"]:  # the trigger could not connect
                with name_unreadable_job(event):
                    event = {**event, "namespace": self._look_up()[1]}
            if event["outcome"] == "deadline" and not event.get("what"):
                self._cancel(*self._read_job(context))
                raise AirflowSensorTimeout(f"{event['message']}: {self._time_limit()}")
            return super().execute_complete(context, event)

    def poke(self, context: Context) -> PokeReturnValue:
        """Read the job once, in mode reschedule. Raises the errors of a job that has failed or does not exist."""
        from trainwright.jobs import Phase, phase_of
        from trainwright.jobs.diagnosis.failure_class import end_of
        from trainwright.jobs.wait.stop_early import raise_if_stopped_early

        with self._skip_softly():
            cluster, trainjob = self._read_job(context)
            phase = phase_of(trainjob)
            if phase is Phase.Failed:
                raise end_of(cluster, trainjob)
            raise_if_stopped_early(trainjob)
            self._judge_poke(cluster, trainjob, phase)
        self.log.info("TrainJob %s: %s", trainjob["metadata"]["name"], phase)
        return PokeReturnValue(phase is Phase.Succeeded, self._result(context, cluster, trainjob) if phase.is_final else None)

    def _defer(self, context: Context, cluster: JobsClient, trainjob: dict[str, Any]) -> Any:
        """The result of a job that has already succeeded. Raises the failure of one that has failed; else TaskDeferred."""
        from trainwright.jobs import Phase, phase_of
        from trainwright.jobs.diagnosis.failure_class import end_of

        phase = phase_of(trainjob)
        seconds = min(self.timeout, self.execution_timeout.total_seconds() if self.execution_timeout else self.timeout)
        if phase is Phase.Succeeded:
            self._judge_end(cluster, trainjob)
            return self._result(context, cluster, trainjob)
        if phase is Phase.Failed:
            raise end_of(cluster, trainjob)
        on_cancel = self.on_cancel or "suspend"
        until = time.time() + seconds
        self._wait_in_triggerer(
            context, trainjob, self._options(), until=until, mode=cluster.mode, on_cancel=on_cancel, on_clear="keep"
        )

    @property
    def _on_give_up(self) -> str:
        return self.on_cancel or "keep"

    @property
    def _mode(self) -> str:
        return self.submission_mode

    def _time_limit(self) -> str:
        limit = self.execution_timeout
        is_shorter = limit is not None and limit.total_seconds() < self.timeout
        return super()._time_limit() if is_shorter else f"the timeout of its sensor is {self.timeout:g} s"

    def _judge_poke(self, cluster: JobsClient, trainjob: dict[str, Any], phase: Any) -> None:
        """Raise Diverged for a job that has ended so, or that reports so itself: between two pokes nothing is remembered."""
        from trainwright.jobs import Phase
        from trainwright.jobs.diagnosis.errors import Diverged
        from trainwright.jobs.state.divergence import DivergenceDetector
        from trainwright.jobs.state.progress import reported_values
        from trainwright.jobs.wait.give_up import cancel_unwatched_job

        if phase is Phase.Succeeded:
            self._judge_end(cluster, trainjob)
        if phase is not Phase.Running or not self._fails_on_divergence():
            return
        detector = DivergenceDetector()
        detector.observe(reported_values(trainjob))
        if diverged := detector.running():
            error = Diverged(trainjob, diverged)
            error.add_outcome(cancel_unwatched_job(cluster, trainjob, cancellation.on_error(self._on_give_up), error))
            raise error

    def _wait_in_worker(self, context: Context, cluster: JobsClient, trainjob: dict[str, Any]) -> Any:
        from trainwright.jobs import TrainJobDeadline, Waiting
        from trainwright.jobs.wait.run_to_end import follow_to_end
        from trainwright.jobs.wait.waiting import wait_settings_of

        settings, printer = wait_settings_of(self._options()), self._event_printer()
        waiting = Waiting(
            replace(settings, deadlines=replace(settings.deadlines, total=float(self.timeout))),
            printer,
            on_signal=cancellation.on_signal_of_sensor(context, self.on_cancel),
            on_error=cancellation.on_error(self._on_give_up),
        )
        try:
            ended = follow_to_end(cluster, trainjob, waiting)
        except TrainJobDeadline as error:
            if error.what == "total":
                raise AirflowSensorTimeout(str(error)) from None
            raise
        return self._result(context, cluster, ended, dict(printer.progress.metrics) if printer.progress else None)

    def _read_job(self, context: Context) -> tuple[Any, dict[str, Any]]:
        """The cluster in the job's mode, and the job. Raises TrainJobDeleted if there is none, or another one of that name."""
        from trainwright.jobs import TrainJobDeleted

        found, namespace, name = self._look_up()
        if found is None:
            raise TrainJobDeleted(missing_job(namespace, name))
        cluster, trainjob = found
        if (uid := JobReference.parse(self.trainjob).uid) and uid != trainjob["metadata"]["uid"]:
            raise TrainJobDeleted(f"TrainJob {namespace}/{name} was deleted, and created again since")
        return cluster, self._resumed(context, cluster, trainjob)

    def _find_job(self, context: Context) -> tuple[Any, dict[str, Any]] | None:
        return self._look_up()[0]

    def _look_up(self) -> tuple[tuple[Any, dict[str, Any]] | None, str, str]:
        """The job with its cluster, or None; the namespace and the name that were looked up."""
        from trainwright.steps.change_jobs import job_named

        reference = JobReference.parse(self.trainjob)
        cluster = self._cluster(self.submission_mode or reference.submission_mode)
        namespace = self.namespace or reference.namespace or str(cluster.default_namespace)
        return job_named(cluster, reference.name, namespace), namespace, reference.name

    def _resumed(self, context: Context, cluster: JobsClient, trainjob: dict[str, Any]) -> dict[str, Any]:
        """A job that the previous try of this sensor has suspended goes on. With `keep` nothing of the job is ever changed."""
        from trainwright.jobs.submit.adoption import resume_if_suspended_by_us

        if not resumes(self.on_cancel, int(context["ti"].try_number)):
            return trainjob
        return resume_if_suspended_by_us(cluster, trainjob)

    def _cancel(self, cluster: JobsClient, trainjob: dict[str, Any]) -> None:
        from trainwright.jobs.wait.give_up import cancel_unwatched_job

        result = cancel_unwatched_job(cluster, trainjob, cancellation.on_error(self._on_give_up))
        self.log.error("TrainJob %s took too long: %s", trainjob["metadata"]["name"], result)

    def _values(self) -> dict[str, Any]:
        """The settings of waiting by name, as they were given, or rendered."""
        return {
            # Written by `make edges` from TrainRequest.
            "limits": self.limits,
            "logging": self.logging,
            # End of what `make edges` writes.
        }

    def _options(self) -> TrainRequest:
        from trainwright.jobs import TrainRequest
        from trainwright.operators.values.given_run import asked

        return asked(TrainRequest, self._values())

    def _result(
        self, context: Context, cluster: JobsClient, trainjob: dict[str, Any], metrics: dict[str, str] | None = None
    ) -> Any:
        from trainwright.jobs import StepResult
        from trainwright.jobs.logs.results import results_of
        from trainwright.jobs.state.progress import progress_of
        from trainwright.jobs.state.run_folder import folder_of_job
        from trainwright.jobs.state.started_from import read_started_from

        reference, metadata = JobReference.parse(self.trainjob), trainjob["metadata"]
        folder = folder_of_job(trainjob) if reference.folder is None else reference.folder
        metrics = dict(progress_of(trainjob).metrics) if metrics is None else metrics
        results = results_of(cluster, trainjob) if reference.has_results is not False else None
        result = StepResult(
            metadata["name"], metadata["namespace"], metrics, results, folder, read_started_from(cluster, trainjob)
        )
        return self._done(context, result)

    def _has_results(self) -> bool:
        reference = JobReference.parse(self.trainjob)
        return reference.folder is None or reference.has_results is not False

    def _fails_on_divergence(self) -> bool:
        return self._options().limits.fail_on_divergence

    def _folder(self, context: Context) -> str:
        return JobReference.parse(self.trainjob).folder or ""

    def _can_start_in_triggerer(self) -> bool:
        """Whether there are no templates, which only a worker can render."""
        values = [getattr(self, name) for name in self.template_fields]
        is_plain = all(map(_is_plain, values))
        return is_plain and isinstance(self.trainjob, str)

    def _start_trigger_args(self) -> StartTriggerArgs:
        trigger = NamedTrainJobTrigger(
            trainjob=str(self.trainjob),
            namespace=self.namespace,
            submission_mode=self.submission_mode,
            conn_id=self.conn_id,
            on_cancel=self.on_cancel,
            min_defer_seconds=self.min_defer_seconds,
            log_poll_interval=self.log_poll_interval,
            waiting=self._values(),
        )
        path, arguments = trigger.serialize()
        return StartTriggerArgs(
            trigger_cls=path,
            trigger_kwargs=arguments,
            next_method="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    @contextmanager
    def _skip_softly(self) -> Iterator[None]:
        """With soft_fail or never_fail, turn the end of a job or of the wait into a skipped task, as other sensors do."""
        from trainwright.jobs import TrainJobError

        try:
            yield
        except (TrainJobError, AirflowSensorTimeout, AirflowFailException) as error:
            if not (self.soft_fail or self.never_fail):
                raise
            raise AirflowSkipException(f"{type(error).__name__}: {error}") from error


def _is_plain(value: Any) -> bool:
    """Whether a value has no template and no result of another task, and is JSON, as the arguments of a trigger are."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return value is None or (isinstance(value, str | int) and "{{" not in str(value))
