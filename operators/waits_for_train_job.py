"""How Airflow enters a task that waits for a TrainJob, as TrainJobOperator and TrainJobSensor do: few and short methods.

What they do stands in `waiting`, which is not imported when a DAG is parsed.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import BaseOperator, BaseOperatorLink

from trainwright.operators.errors import fail_fast
from trainwright.operators.reporting.links import NO_LINKS, CheckpointLink, LogsLink, TrainJobLink
from trainwright.operators.values.airflow_api import TaskDeferralError, TaskDeferralTimeout
from trainwright.operators.values.given_parameters import TextTemplates

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainwright.jobs import StepResult
    from trainwright.operators.waiting.waiting_task import WaitingTask


class WaitsForTrainJob(TextTemplates):
    """The entries of Airflow after `execute`, which is the subclass's. Each makes a `WaitingTask`, since the process may be new."""

    conn_id: str | None
    min_defer_seconds: float
    log_poll_interval: float
    entry: WaitingTask | None = None
    """The last entry in this process: Airflow calls `on_kill`, and its OpenLineage provider its methods, on the same operator."""
    shown_links = NO_LINKS
    operator_extra_links: Collection[BaseOperatorLink] = (TrainJobLink(), LogsLink(), CheckpointLink())

    def enter(self, context: Context) -> WaitingTask:
        """Read the settings, which are rendered by now, and keep the new entry. Raises the errors of invalid settings."""
        raise NotImplementedError

    @fail_fast()
    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Turn the trigger's event into the task's result, or into an error with the job's failure report."""
        return self.enter(context).complete(event)

    @fail_fast()
    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Like the base class, but also handles a timeout and a failed trigger, for which Airflow calls no method.

        After a timeout, `on_cancel` applies and the task fails. After a failed trigger, the worker waits for the job.
        """
        resume = partial(super().resume_execution, next_method, next_kwargs, context)
        if hasattr(self, next_method):  # an ordinary event of the trigger
            return resume()
        entry = self.enter(context)
        if (found := entry.find_job()) is None:  # without a job, only the error of Airflow is left
            return resume()
        try:
            BaseOperator.resume_execution(cast(BaseOperator, self), next_method, next_kwargs, context)
        except TaskDeferralTimeout:  # Airflow fails the task, but knows nothing of its job
            entry.give_up_late(*found)
        except TaskDeferralError as error:  # the job may be well: only the trigger has failed
            return entry.wait_after_failed_trigger(*found, error)
        return resume()

    def on_kill(self) -> None:
        """Stop the job and end the process, if a trigger waits for it in this very process: `airflow tasks test` and `dags test`."""
        if self.entry is not None:
            self.entry.end_test()

    def xcom_value(self, result: StepResult) -> Any:
        """The task's XCom, from a `StepResult`."""
        return result.as_dict()
