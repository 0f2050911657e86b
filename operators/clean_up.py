"""Stop what a run has left running, as the last task of a DAG; or what any run has left, as a DAG of its own."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainwright.operators.errors import fail_fast
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.given_parameters import TextTemplates
from trainwright.operators.values.rendered_values import parse_flag, parse_number
from trainwright.operators.values.task_identity import run_labels, task_identity

if TYPE_CHECKING:
    from airflow.sdk import Context


_MAX_DAYS = 36_500


class CleanUpOperator(TextTemplates, BaseOperator):
    """Suspend or delete unfinished TrainJobs: those of this DAG run, or with older_than_days or abandoned those of any run.

    For jobs whose worker was killed in the last try of its task. With `trigger_rule=TriggerRule.ALL_DONE` and all trainings
    upstream, or with `as_teardown()`, it runs after failures too. What is set must all hold for a job. Only jobs that Trainwright
    has created are changed, and none that has ended. Running its task again resumes a suspended job.

    :param run_id: id of a run of this DAG, as in TrainJobOperator; defaults to DAG/RUN_ID of the DAG run, unless older_than_days or
        abandoned is set.
    :param on_failure: suspend, delete or keep: what to do with the jobs.
    :param older_than_days: jobs created more than so many days ago, of any DAG and pipeline unless run_id is set. 0: of any age.
    :param abandoned: jobs whose waiting step is gone longer than its lease (waiter_lease_seconds), of any DAG and pipeline unless
        run_id is set.
    :param all_namespaces: with older_than_days or abandoned, jobs of all namespaces.
    :param namespace: namespace of the TrainJobs; defaults to the connection's.
    :param submission_mode: auto, trainjob or jobset; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes`; None uses the environment.
    :return: the jobs, each with name, namespace, submitter, phase, created, what was done with it (outcome), and failed.
    """

    template_fields = (
        "run_id",
        "on_failure",
        "older_than_days",
        "abandoned",
        "all_namespaces",
        "namespace",
        "submission_mode",
        "conn_id",
    )

    def __init__(
        self,
        *,
        run_id: str = "",
        on_failure: str = "suspend",
        older_than_days: float | str = 0,
        abandoned: bool | str = False,
        all_namespaces: bool | str = False,
        namespace: str = "",
        submission_mode: str = "",
        conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if "{{" not in on_failure and on_failure not in ("suspend", "delete", "keep"):
            raise ValueError(f"on_failure={on_failure!r}: expected suspend, delete or keep")
        self.run_id, self.on_failure, self.older_than_days = run_id, on_failure, older_than_days
        self.abandoned, self.all_namespaces, self.namespace = abandoned, all_namespaces, namespace
        self.submission_mode, self.conn_id = submission_mode, conn_id
        self.check_values(vars(self))

    @fail_fast()
    def execute(self, context: Context) -> list[dict[str, Any]]:
        from trainwright.jobs import TrainJobError
        from trainwright.jobs.state.cancel import CancelPolicy
        from trainwright.steps.ends.clean import clean, left_jobs

        policy, left = CancelPolicy(self.on_failure), self._left(context)
        is_everywhere = parse_flag("all_namespaces", self.all_namespaces)
        if is_everywhere and left.run:
            raise ValueError("all_namespaces: only with older_than_days or abandoned, without run_id")
        if policy is CancelPolicy.keep:  # what to keep need not be looked for
            self.log.info("on_failure=keep: nothing is changed")
            return []
        cluster = TrainwrightHook(self.conn_id, self.submission_mode).get_conn()
        namespace = None if is_everywhere else self.namespace or cluster.default_namespace
        cleaned = []
        for job in clean(cluster, left_jobs(cluster, namespace, left), policy):
            message = "TrainJob %s/%s of %s was %s: %s"
            self.log.info(message, job.namespace, job.name, job.submitter, job.phase.value, job.outcome)
            cleaned.append({**asdict(job), "phase": job.phase.value})
        if not cleaned:
            self.log.info("no job%s is left", f" of the run {left.run}" if left.run else "")
        if failed := [f"{job['namespace']}/{job['name']}" for job in cleaned if job["failed"]]:
            raise TrainJobError(f"TrainJobs that may still be running: {', '.join(failed)}; see the log of this task")
        return cleaned

    def _left(self, context: Context) -> Any:
        """Return which jobs are left over: a `LeftJobs`. Raises ValueError."""
        from trainwright.steps.ends.clean import LeftJobs

        days, abandoned = parse_number("older_than_days", self.older_than_days), parse_flag("abandoned", self.abandoned)
        if days > _MAX_DAYS:
            raise ValueError(f"older_than_days: {days:g}: expected at most {_MAX_DAYS}")
        older_than = timedelta(days=days) if days else None
        if (older_than is not None or abandoned) and not self.run_id:
            return LeftJobs(older_than=older_than, abandoned=abandoned)
        identity = task_identity(context, self.run_id)
        if not self.run_id:  # whatever run its tasks have named, and what programs have submitted in the DAG run's name
            return LeftJobs(run=str(context["ti"].run_id), owner=identity.owner, labels=run_labels(context))
        return LeftJobs(run=identity.run, owner=identity.owner, older_than=older_than, abandoned=abandoned)
