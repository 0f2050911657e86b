"""Train: a TrainJob, submitted or adopted, followed to its end in the worker or, deferred, in the triggerer."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

from airflow.sdk import BaseOperator, conf
from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason

from trainwright.operators import leaving
from trainwright.operators.failing import retried_unless_in_vain
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.task_identity import earlier_identities, task_identity
from trainwright.operators.task_state import TaskId
from trainwright.operators.trigger import LOG_BYTES, LOG_INTERVAL_SECONDS, SETTLE_SECONDS, TrainJobTrigger

_BACKSTOP_SECONDS = 120
"""How much later than the trigger's own deadline Airflow's comes, which leaves the trigger no time to say anything."""


class TrainJobOperator(BaseOperator):
    """Fine-tune in a TrainJob and wait until it has succeeded.

    A retry adopts the job of the try before; clearing the task starts a new one. A worker that goes away (SIGTERM, SIGKILL)
    leaves the job running for the retry. A task that is marked failed, out of time, or that has no retry left when its
    worker gets SIGTERM, suspends its job: nothing keeps running, and the next try goes on from the last whole checkpoint.

    :param workspace: pvc://CLAIM or pvc://CLAIM/FOLDER, the volume that initializers, nodes and exporter share; with
        ?size=20Gi&class=NAME&access=MODE&retain=keep (all but size optional) the claim is made where it does not exist.
    :param dataset_uri: as given to InitializeDatasetOperator.
    :param model_uri: as given to InitializeModelOperator.
    :param runtime: a ClusterTrainingRuntime with the steps of trl-sft.
    :param settings: training settings, as a dict or as JSON; see docs/settings.md.
    :param run: names the run in place of the DAG run's id: a DAG run of the same name goes on with its job.
    :param env: variables of the training program; credentials as {"valueFrom": {"secretKeyRef": ...}}, literal ones are refused.
    :param dataset_secret: a Secret whose keys become variables of the dataset initializer; model_secret likewise.
    :param queue_name: a LocalQueue of Kueue, which lets the job start; priority_class: one of that queue.
    :param topology: required:KEY, preferred:KEY, unconstrained or exclusive:KEY; see docs/settings.md, as for the next three.
    :param node_selector: for the training steps, as a pod has it; likewise tolerations and affinity.
    :param conn_id: a connection of the type `trainwright` or `kubernetes`; None uses the environment.
    :param queue_timeout: seconds that the job may be queued or suspended; start_timeout: until its nodes must train;
        run_timeout: that they may train. None waits. The task's execution_timeout counts as well, deferred or not.
    :param deferrable: wait in the triggerer; default: [operators] default_deferrable.
    :param stopping: what becomes of the job when the task is ended early: suspend, delete, or keep.
    :param resume: where a new job goes on from: auto (the last whole checkpoint), never, or the URI of an exported checkpoint.
    :param export_uri: where this run exports to: with auto a job whose workspace has no checkpoint goes on from its export.
    :param resume_secret: a Secret with what reads exports (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL ...).
    :param earlier: what becomes of ended earlier jobs of this task once the next one is submitted: keep or delete.
    :param preemption_budget: times that the task submits the next job by itself because pods were taken away; 0 leaves it to
        the retries of the task.
    :param logs: whose log the task's log shows as it grows: a rank of the training nodes, all, STEP:RANK, STEP:all, or none.
    :param log_bytes: how much of it; after that only its last lines, when the job has ended.
    :param log_interval: seconds between two looks at it while the task is deferred; 0 never looks.
    :param settle_seconds: the least time between deferral and event, see SETTLE_SECONDS of the trigger.
    :return: trainjob, namespace, metrics.
    """

    template_fields = (
        "workspace",
        "dataset_uri",
        "model_uri",
        "runtime",
        "settings",
        "namespace",
        "run",
        "resume",
        "export_uri",
        "resume_secret",
        "num_nodes",
        "env",
        "resources_per_node",
        "queue_name",
        "priority_class",
        "topology",
        "node_selector",
        "tolerations",
        "affinity",
        "logs",
    )

    def __init__(
        self,
        *,
        workspace: str,
        dataset_uri: str = "",
        model_uri: str = "",
        runtime: str = "trl-sft",
        settings: dict[str, Any] | str = "{}",
        namespace: str = "",
        run: str = "",
        num_nodes: int | str = 1,
        num_proc_per_node: int | None = None,
        resources_per_node: dict[str, str] | None = None,
        env: dict[str, Any] | None = None,
        dataset_secret: str = "",
        model_secret: str = "",
        queue_name: str = "",
        priority_class: str = "",
        topology: str = "",
        node_selector: dict[str, str] | None = None,
        tolerations: list[dict[str, Any]] | None = None,
        affinity: dict[str, Any] | None = None,
        queue_timeout: float | None = None,
        start_timeout: float | None = None,
        run_timeout: float | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        stopping: str = "suspend",
        resume: str = "auto",
        export_uri: str = "",
        resume_secret: str = "",
        earlier: str = "keep",
        preemption_budget: int = 3,
        logs: str = "0",
        log_bytes: int = LOG_BYTES,
        log_interval: float = LOG_INTERVAL_SECONDS,
        settle_seconds: float = SETTLE_SECONDS,
        conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.workspace, self.dataset_uri, self.model_uri, self.runtime = workspace, dataset_uri, model_uri, runtime
        self.settings, self.namespace, self.run, self.conn_id = settings, namespace, run, conn_id
        self.num_nodes, self.num_proc_per_node = num_nodes, num_proc_per_node
        self.resources_per_node, self.env = resources_per_node or {}, env or {}
        self.dataset_secret, self.model_secret = dataset_secret, model_secret
        self.queue_name, self.priority_class, self.topology = queue_name, priority_class, topology
        self.node_selector, self.tolerations, self.affinity = node_selector or {}, tolerations or [], affinity or {}
        if stopping not in ("suspend", "delete", "keep"):
            raise ValueError(f"stopping={stopping!r}: expected suspend, delete or keep")
        self.resume, self.export_uri, self.resume_secret, self.earlier = resume, export_uri, resume_secret, earlier
        self.preemption_budget = preemption_budget
        self.queue_timeout, self.start_timeout, self.run_timeout = queue_timeout, start_timeout, run_timeout
        self.deferrable, self.stopping, self.settle_seconds = deferrable, stopping, settle_seconds
        self.logs, self.log_bytes, self.log_interval = logs, log_bytes, log_interval

    @retried_unless_in_vain()
    def execute(self, context: Any) -> dict[str, Any]:
        from trainwright.jobs.logs import Wanted
        from trainwright.jobs.run import ended_by_signals, run_to_end

        cluster = TrainwrightHook(self.conn_id).get_conn()
        identity, namespace = task_identity(context, self.run), self._namespace(cluster)
        leaving.stop_earlier(cluster, identity, namespace, self.stopping)
        if not self.deferrable:
            more = {**self._submitting(context, identity), **self._waiting(context)}
            return _result(run_to_end(cluster, self._request(), identity, namespace, **more), more["tell"].progress)
        Wanted.parse(str(self.logs))  # before there is a job
        limit = self.execution_timeout.total_seconds() if self.execution_timeout else None
        with ended_by_signals() as stop:
            return self._submit_and_defer(context, cluster, stop, time.time() + limit if limit is not None else None)

    def _submit_and_defer(self, context: Any, cluster: Any, stop: threading.Event, until: float | None) -> dict[str, Any]:
        """The result of a job that has succeeded already; else raises TaskDeferred, or Cancelled once `stop` is set."""
        from trainwright.jobs import Phase, phase_of
        from trainwright.jobs.run import Cancelled, leave

        submitted = self._submit(context, cluster)
        cluster, trainjob = submitted.cluster or cluster, submitted.trainjob
        if phase_of(trainjob) is Phase.Succeeded:
            return _result(trainjob)
        if stop.is_set():
            became = leave(cluster, trainjob, leaving.on_signal(context, self.stopping))
            raise Cancelled(f"the task was ended before it was deferred; TrainJob {trainjob['metadata']['name']}: {became}")
        self._defer(context, trainjob, until, submitted.mode)

    @retried_unless_in_vain()
    def execute_complete(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:
        """What the trigger has seen becomes the task's result, or its error with the report of the job's failure."""
        from trainwright.api.errors import NotFound
        from trainwright.api.kinds import TRAINJOB
        from trainwright.jobs import JobDeleted, TrainJobError
        from trainwright.jobs.run import leave
        from trainwright.jobs.verdict import deadline_of, failure_of

        name, namespace, outcome = event["name"], event["namespace"], event["outcome"]
        if outcome == "succeeded":
            return {"trainjob": name, "namespace": namespace, "metrics": event.get("metrics") or {}}
        if outcome == "deleted":
            raise JobDeleted(event["message"])
        cluster = TrainwrightHook(self.conn_id, event.get("submission_mode") or "").get_conn()
        try:
            trainjob = cluster.get(TRAINJOB, name, namespace)
        except NotFound:
            raise JobDeleted(f"TrainJob {namespace}/{name} {outcome} and was deleted since: {event['message']}") from None
        if outcome == "failed":
            return self._after_failure(context, cluster, failure_of(cluster, trainjob), event.get("until"))
        became = leave(cluster, trainjob, leaving.on_error(self.stopping))
        if outcome == "deadline":
            raise deadline_of(cluster, trainjob, event["message"], event.get("what") or "run", after=became)
        raise TrainJobError(f"TrainJob {namespace}/{name} could not be followed: {event['message']}; {became}")

    def _after_failure(self, context: Any, cluster: Any, failure: Exception, until: float | None) -> dict[str, Any]:
        """After a preemption the next job is submitted and waited for, within the budget. Raises the failure else."""
        from trainwright.jobs import Preempted
        from trainwright.jobs.preemption import wait_to_resume
        from trainwright.jobs.run import Cancelled, ended_by_signals

        if not isinstance(failure, Preempted) or not self.preemption_budget:
            raise failure
        with ended_by_signals() as stop:
            if not wait_to_resume(cluster, failure, self.preemption_budget, stop):
                raise Cancelled(
                    "the task was ended while it waited to resume a job that was preempted; nothing runs"
                ) from failure
            return self._submit_and_defer(context, cluster, stop, until)

    @retried_unless_in_vain()
    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """As the base class; what Airflow tells nobody of, a timeout and a trigger that broke, is seen to as well.

        After a timeout the job is stopped and the task fails. After a broken trigger the worker waits for the job itself.
        """
        if next_method != TRIGGER_FAIL_REPR:
            return super().resume_execution(next_method, next_kwargs, context)
        from trainwright.jobs.both_modes import find_job
        from trainwright.jobs.run import follow_to_end, leave

        cluster = TrainwrightHook(self.conn_id).get_conn()
        found = find_job(cluster, task_identity(context, self.run), self._namespace(cluster))
        if found is None:
            return super().resume_execution(next_method, next_kwargs, context)
        cluster, trainjob = found
        name = trainjob["metadata"]["name"]
        reason = (next_kwargs or {}).get("error")
        if reason == TriggerFailureReason.TRIGGER_TIMEOUT:
            self.log.error("TrainJob %s took too long: %s", name, leave(cluster, trainjob, leaving.on_error(self.stopping)))
            return super().resume_execution(next_method, next_kwargs, context)
        self.log.warning("the trigger failed (%s); waiting for TrainJob %s in the worker", reason, name)
        waiting = self._waiting(context)
        again = partial(self._submit, context, cluster)
        return _result(follow_to_end(cluster, trainjob, again=again, **waiting), waiting["tell"].progress)

    def _submit(self, context: Any, cluster: Any) -> Any:
        from trainwright.jobs import submit_or_adopt

        identity = task_identity(context, self.run)
        more = self._submitting(context, identity)
        return submit_or_adopt(cluster, self._request(), identity, self._namespace(cluster), **more)

    def _defer(self, context: Any, trainjob: dict[str, Any], until: float | None, mode: str) -> NoReturn:
        """`until` is the end of the task's execution_timeout, in seconds since the epoch. Raises TaskDeferred."""
        left = until - time.time() if until is not None else None
        metadata = trainjob["metadata"]
        self.defer(
            trigger=TrainJobTrigger(
                conn_id=self.conn_id,
                namespace=metadata["namespace"],
                name=metadata["name"],
                uid=metadata["uid"],
                task=TaskId.of(context).as_dict(),
                stopping=self.stopping,
                deadlines={"queue": self.queue_timeout, "start": self.start_timeout, "run": self.run_timeout},
                until=until,
                settle_seconds=self.settle_seconds,
                submission_mode=str(mode),
                logs=str(self.logs),
                log_bytes=int(self.log_bytes),
                log_interval=self.log_interval,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=max(left, 0) + self.settle_seconds + _BACKSTOP_SECONDS) if left is not None else None,
        )

    def _waiting(self, context: Any) -> dict[str, Any]:
        """How the worker waits, as arguments."""
        from trainwright.jobs import Deadlines, Live, Teller

        return {
            "preemption_budget": self.preemption_budget,
            "deadlines": Deadlines(queue=self.queue_timeout, start=self.start_timeout, run=self.run_timeout),
            "tell": Teller(lambda line: self.log.info("%s", line)),
            "logs": Live.parse(str(self.logs), int(self.log_bytes)),
            "on_signal": leaving.on_signal(context, self.stopping),
            "on_error": leaving.on_error(self.stopping),
        }

    def _submitting(self, context: Any, identity: Any) -> dict[str, Any]:
        """What a submission knows besides the request, as arguments: the run's export, and what the task was before a clear."""
        from trainwright.checkpoints.resume_source import exported_by

        exported = exported_by(str(context["ti"].run_id), self.export_uri) if self.export_uri else None
        return {"latest_checkpoint": exported, "was": tuple(earlier_identities(identity))}

    def _namespace(self, cluster: Any) -> str:
        return self.namespace or str(cluster.default_namespace)

    def _request(self) -> Any:
        from trainwright.jobs import TrainRequest
        from trainwright.jobs.sft import SftSettings

        text = self.settings if isinstance(self.settings, str) else json.dumps(self.settings)
        resources = self.resources_per_node
        return TrainRequest(
            runtime=self.runtime,
            dataset_uri=self.dataset_uri,
            dataset_secret=self.dataset_secret,
            model_uri=self.model_uri,
            model_secret=self.model_secret,
            args=SftSettings.model_validate_json(text).arguments(),
            env=self.env,
            num_nodes=int(self.num_nodes),
            num_proc_per_node=self.num_proc_per_node,
            resources_per_node={"limits": resources, "requests": resources} if resources else {},
            workspace=self.workspace,
            resume=self.resume,
            resume_secret=self.resume_secret,
            earlier=self.earlier,
            queue_name=self.queue_name,
            priority_class=self.priority_class,
            topology=self.topology,
            node_selector=self.node_selector,
            tolerations=self.tolerations,
            affinity=self.affinity,
            active_deadline_seconds=int(self.run_timeout) if self.run_timeout else None,
        )


def _result(trainjob: dict[str, Any], progress: Any = None) -> dict[str, Any]:
    """`progress` where somebody has waited: it has the metrics of the log, too."""
    from trainwright.jobs.progress import progress_of

    metadata, metrics = trainjob["metadata"], (progress or progress_of(trainjob)).metrics
    return {"trainjob": metadata["name"], "namespace": metadata["namespace"], "metrics": dict(metrics)}
