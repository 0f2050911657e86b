"""Stop hopeless trials of a sweep while the others train."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowRuntimeError

from trainwright.operators.errors import fail_fast
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.airflow_api import AirflowSkipException
from trainwright.operators.values.given_parameters import TextTemplates
from trainwright.operators.values.rendered_values import parse_flag, parse_number
from trainwright.operators.values.task_identity import task_identity

if TYPE_CHECKING:
    from airflow.sdk import Context


_ENDED = {"success", "failed", "skipped", "upstream_failed", "removed"}


class StopHopelessTrialsOperator(TextTemplates, BaseOperator):
    """Watch the trials of a sweep, beside them, and stop those that are worse than the median of the others; ends when all have ended.

    The rule is median stopping, see docs/airflow/sweeps.md. The TrainJob of a stopped trial is suspended and has the reason in an
    annotation; the task that waits for it is skipped. Only metrics in the status of TrainJobs count. A retry begins with what is
    reported then.

    :param trials_task_id: the mapped task that trains the trials, of this DAG.
    :param metric: reported metric by which trials are compared.
    :param greater_is_better: whether a greater value is better.
    :param min_trials: other trials that must have come as far before a trial is judged.
    :param start_step: values that a trial must have reported before it is judged.
    :param enabled: False skips this task.
    :param poll_interval: seconds between two looks at the TrainJobs.
    :param idle_timeout_seconds: seconds without a TrainJob that trains or waits to do so, after which this ends: it does not block an
        executor that runs one task after another.
    :param run_id: id of the run, as in TrainJobOperator; defaults to DAG/RUN_ID of the DAG run.
    :param namespace: namespace of the TrainJobs; defaults to the connection's.
    :param submission_mode: auto, trainjob or jobset; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes`; None uses the environment.
    :return: the stopped trials, each with index, trainjob and reason.
    """

    template_fields = (
        "trials_task_id",
        "metric",
        "greater_is_better",
        "min_trials",
        "start_step",
        "enabled",
        "poll_interval",
        "idle_timeout_seconds",
        "run_id",
        "namespace",
        "submission_mode",
        "conn_id",
    )

    def __init__(
        self,
        *,
        trials_task_id: str,
        metric: str = "eval_loss",
        greater_is_better: bool | str = False,
        min_trials: int | str = 3,
        start_step: int | str = 4,
        enabled: bool | str = True,
        poll_interval: float | str = 10,
        idle_timeout_seconds: float | str = 600,
        run_id: str = "",
        namespace: str = "",
        submission_mode: str = "",
        conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.trials_task_id, self.metric, self.greater_is_better = trials_task_id, metric, greater_is_better
        self.min_trials, self.start_step, self.enabled = min_trials, start_step, enabled
        self.poll_interval, self.idle_timeout_seconds = poll_interval, idle_timeout_seconds
        self.run_id, self.namespace, self.submission_mode, self.conn_id = run_id, namespace, submission_mode, conn_id
        self.check_values(vars(self))

    @fail_fast()
    def execute(self, context: Context) -> list[dict[str, Any]]:
        from trainwright.steps.training.early_stop import MedianStop, stop_hopeless_trials, trials_of_run

        if not parse_flag("enabled", self.enabled):
            raise AirflowSkipException("early stopping is turned off")
        rule = MedianStop(
            self.metric,
            parse_flag("greater_is_better", self.greater_is_better),
            int(parse_number("min_trials", self.min_trials)),
            int(parse_number("start_step", self.start_step)),
        )
        cluster, identity = TrainwrightHook(self.conn_id, self.submission_mode).get_conn(), task_identity(context, self.run_id)
        where = {"owner": identity.owner, "run": identity.run, "step": self.trials_task_id}
        namespace = self.namespace or cluster.default_namespace
        stopped = stop_hopeless_trials(
            lambda: trials_of_run(cluster, **where, namespace=namespace),
            rule,
            have_ended=lambda: self._have_ended(context["ti"]),
            poll_seconds=parse_number("poll_interval", self.poll_interval),
            idle_seconds=parse_number("idle_timeout_seconds", self.idle_timeout_seconds),
        )
        return [asdict(trial) for trial in stopped]

    def _have_ended(self, ti: Any) -> bool:
        """Whether Airflow has ended all trials. False if it cannot be asked."""
        try:
            found = ti.get_task_states(dag_id=ti.dag_id, task_ids=[self.trials_task_id], run_ids=[ti.run_id])
        except (AirflowRuntimeError, OSError) as error:  # while trials may run, the search goes on
            self.log.warning("the states of the trials could not be read: %s", error)
            return False
        states = [str(getattr(state, "value", state) or "") for state in (found.get(ti.run_id) or {}).values()]
        return bool(states) and all(state in _ENDED for state in states)
