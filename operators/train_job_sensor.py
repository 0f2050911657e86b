"""Wait for a TrainJob that another task, or anybody else, has submitted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.triggers.base import StartTriggerArgs

from trainwright import jobs
from trainwright.operators.errors import fail_fast
from trainwright.operators.groups import Deferral, Limits, Logging, check_flat_names
from trainwright.operators.reporting.links import LogsLink, TrainJobLink, begin_links
from trainwright.operators.values.airflow_api import AirflowFailException, AirflowSensorTimeout, AirflowSkipException, conf
from trainwright.operators.values.rendered_values import deferral_options
from trainwright.operators.waits_for_train_job import WaitsForTrainJob

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainwright.operators.waiting.sensed_job import SensedJob


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

    groups = ("limits", "logging", "deferral")
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
        check_flat_names(self.groups, kwargs)
        super().__init__(**kwargs)
        self.trainjob, self.namespace = trainjob, namespace
        self.submission_mode, self.conn_id, self.on_cancel = submission_mode, conn_id, on_cancel
        # Written by `make edges` from TrainRequest.
        self.limits = limits
        self.logging = logging
        # End of what `make edges` writes.
        self.deferrable = deferrable
        self.log_poll_interval, self.min_defer_seconds = deferral_options(deferral)
        self.check_values({**vars(self), "deferral": deferral})
        if on_cancel and "{{" not in on_cancel and on_cancel not in ("suspend", "delete", "keep"):
            raise ValueError(f"on_cancel={on_cancel!r}: expected suspend, delete or keep")
        # Only a worker can render templates.
        if deferrable and isinstance(self.trainjob, str) and all(_is_plain(getattr(self, name)) for name in self.template_fields):
            self.start_from_trigger, self.start_trigger_args = True, self._start_trigger_args()

    def enter(self, context: Context) -> SensedJob:
        """As of the base class."""
        from trainwright.operators.waiting.sensed_job import SensedJob, SensorOptions

        options = SensorOptions(
            conn_id=self.conn_id,
            trainjob=self.trainjob,
            namespace=self.namespace,
            submission_mode=self.submission_mode,
            on_cancel=self.on_cancel,
            deferrable=self.deferrable,
            min_defer_seconds=self.min_defer_seconds,
            log_poll_interval=self.log_poll_interval,
            xcom_value=self.xcom_value,
        )
        self.entry = SensedJob(self, context, options, self._values())
        return self.entry

    @fail_fast()
    def execute(self, context: Context) -> Any:
        if not self.deferrable and self.reschedule:  # the base class frees the worker between two pokes
            return super().execute(context)
        begin_links(self)
        with self._skip_softly():
            return self.enter(context).run()

    @fail_fast()
    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """As in TrainJobOperator. A sensor that took too long fails with Airflow's error for that, without retries."""
        with self._skip_softly():
            return self.enter(context).complete(event)

    def poke(self, context: Context) -> PokeReturnValue:
        """Read the job once, in mode reschedule. Raises the errors of a job that has failed or does not exist."""
        with self._skip_softly():
            return self.enter(context).poke()

    def _values(self) -> dict[str, Any]:
        """The settings of waiting by name, as they were given, or rendered."""
        return {
            # Written by `make edges` from TrainRequest.
            "limits": self.limits,
            "logging": self.logging,
            # End of what `make edges` writes.
        }

    def _start_trigger_args(self) -> StartTriggerArgs:
        return StartTriggerArgs(
            trigger_cls="trainwright.operators.named_job_trigger.NamedTrainJobTrigger",
            trigger_kwargs={
                "trainjob": str(self.trainjob),
                "namespace": self.namespace,
                "submission_mode": self.submission_mode,
                "conn_id": self.conn_id,
                "on_cancel": self.on_cancel,
                "min_defer_seconds": self.min_defer_seconds,
                "log_poll_interval": self.log_poll_interval,
                "waiting": self._values(),
            },
            next_method="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    @contextmanager
    def _skip_softly(self) -> Iterator[None]:
        """With soft_fail or never_fail, turn the end of a job or of the wait into a skipped task, as other sensors do."""
        try:
            yield
        except (jobs.TrainJobError, AirflowSensorTimeout, AirflowFailException) as error:
            if not (self.soft_fail or self.never_fail):  # the sensor may fail
                raise
            raise AirflowSkipException(f"{type(error).__name__}: {error}") from error


def _is_plain(value: Any) -> bool:
    """Whether a value has no template and no result of another task, and is JSON, as the arguments of a trigger are."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return value is None or (isinstance(value, str | int) and "{{" not in str(value))
