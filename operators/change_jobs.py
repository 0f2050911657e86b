"""The base of the operators that suspend, resume or delete TrainJobs which another task has submitted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from trainwright.api import names
from trainwright.jobs.state.run_folder import label_value
from trainwright.operators.errors import fail_fast
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.given_parameters import TextTemplates
from trainwright.operators.values.rendered_values import parse_number
from trainwright.operators.values.task_identity import run_labels, task_identity

if TYPE_CHECKING:
    from airflow.sdk import Context


class ChangeJobsOperator(TextTemplates, BaseOperator):
    """Apply one change to the TrainJob with a name, or to those of a run of this DAG. See its subclasses."""

    change: ClassVar[str]
    pod_timeout_seconds: float | str = 0
    template_fields: Collection[str] = ("trainjob", "run_id", "namespace", "submission_mode", "conn_id")

    def __init__(
        self,
        *,
        trainjob: str | None = None,
        run_id: str = "",
        namespace: str = "",
        submission_mode: str = "",
        conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if trainjob is not None and run_id:
            raise ValueError("trainjob, run_id: set only one of them")
        self._is_by_name = trainjob is not None
        self.trainjob, self.run_id, self.namespace = trainjob, run_id, namespace
        self.submission_mode, self.conn_id = submission_mode, conn_id
        self.check_values(vars(self))

    @fail_fast()
    def execute(self, context: Context) -> list[dict[str, str]]:
        from trainwright.steps.ends.change_jobs import JobChange, change_jobs, job_named, jobs_to_change

        if self._is_by_name and not self.trainjob:  # a template that renders to nothing must not mean all jobs of the run
            raise ValueError("trainjob: the name is empty; leave it out for the jobs of the DAG run")
        seconds, change = parse_number("pod_timeout_seconds", self.pod_timeout_seconds), JobChange(self.change)
        cluster = TrainwrightHook(self.conn_id, self.submission_mode).get_conn()
        namespace = self.namespace or cluster.default_namespace
        if self.trainjob:
            found = job_named(cluster, self.trainjob, namespace)
            jobs = [found] if found is not None else []
        else:
            identity, run = task_identity(context, self.run_id), self.run_id or str(context["ti"].run_id)
            labels = [{names.RUN_LABEL: label_value(run)}, *([] if self.run_id else [run_labels(context)])]
            submitter = f"{identity.owner}/{run}/" if self.run_id else f"{identity.owner}/"
            jobs = jobs_to_change(cluster, change, labels=labels, submitter=submitter, namespace=namespace)
        if not jobs:
            selected = f"TrainJob {self.trainjob}" if self.trainjob else f"run {task_identity(context, self.run_id).run}"
            self.log.warning("%s: there is nothing to %s in %s", selected, change, namespace)
        changed = change_jobs(jobs, change, pod_timeout_seconds=seconds)
        for job in changed:
            self.log.info("TrainJob %s/%s: %s", job.namespace, job.name, job.outcome)
        return [asdict(job) for job in changed]


class StopJobsOperator(ChangeJobsOperator):
    """The base of changes after which the pods of a job end, which is waited for."""

    template_fields = (*ChangeJobsOperator.template_fields, "pod_timeout_seconds")

    def __init__(self, *, pod_timeout_seconds: float | str = 60, **kwargs: Any):
        super().__init__(**kwargs)
        self.pod_timeout_seconds = pod_timeout_seconds
        self.check_values(vars(self))
