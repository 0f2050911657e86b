"""Handles the TrainJob of a task that ends early: it is kept for the retry, or stopped, so that no job runs unattended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trainwright.api import names
from trainwright.api.conditions import is_finished, is_true
from trainwright.api.errors import ApiError
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import is_deleting, name_of
from trainwright.api.phase import Verdict, superseded
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.cancel import CancelPolicy, cancel_owned_job, suspend_job
from trainwright.jobs.submit.job_lookup import find_job
from trainwright.jobs.wait.give_up import CancelHandler
from trainwright.operators.deferral.job_endings import stop_as_sensor
from trainwright.operators.values.airflow_api import ABSENT, ENDED, ENDED_BY_USER, TaskId
from trainwright.operators.values.task_identity import this_process

if TYPE_CHECKING:
    from airflow.sdk import Context


log = logging.getLogger(__name__)
_BEFORE_ANOTHER_WORKER = ("", "scheduled", "queued", "deferred")
"""States of a task that a new scheduler has taken from a worker whose own scheduler was killed."""
_KEPT = "it keeps running, and the retry of this task adopts it"
_NOT_KNOWN = (
    "it keeps running for a retry: Airflow has not said what became of the task; if it has ended, the triggerer stops the job"
)
ANSWER_SECONDS = 1.0
"""How long Airflow is asked what became of the task: it sends SIGKILL five seconds after SIGTERM, and the job comes after that."""


def on_signal(context: Context, on_cancel: str, *, durable: bool = True) -> CancelHandler:
    """Returns a handler for the job when the worker gets SIGTERM. It depends on the state of the task in Airflow.

    * Cleared: the job is superseded, and the next try starts a new one. This includes a job with `keep`, because two jobs
      would write to one workspace.
    * Ended by a user (marked as failed or succeeded): the job is stopped.
    * Otherwise only the worker ends. With a retry left the job keeps running and the retry adopts it, if the task is `durable`,
      whether or not Airflow answers: it is only asked for a user's decision, and briefly. If it does not answer, and the task has
      ended, the triggerer stops the job (`left_jobs`). Without a retry the job is stopped, unless another worker has taken over
      the task, as after a scheduler was killed.
    """
    ti = context["ti"]

    def handle(cluster: Cluster, trainjob: dict[str, Any], verdict: Verdict | None = None, /) -> str:
        state = TaskId.of(context).state_within(ANSWER_SECONDS)
        if state == "restarting" and on_cancel != CancelPolicy.delete:  # two jobs would write to one workspace
            suspend_job(cluster, trainjob, superseded("its task was cleared"))
            return "it is suspended permanently: the task was cleared, and starts a new one"
        if durable and state not in (*ENDED, ABSENT, "restarting"):
            if int(ti.try_number) <= int(getattr(ti, "max_tries", 0) or 0):  # a retry is left, which adopts the job
                return _KEPT if state is not None else _NOT_KNOWN
            if state in _BEFORE_ANOTHER_WORKER or _is_taken_over(cluster, trainjob):
                return "it keeps running: another worker takes over this task, and adopts it"
        return cancel_owned_job(cluster, trainjob, CancelPolicy(on_cancel))

    return handle


def on_signal_of_sensor(context: Context, on_cancel: str) -> CancelHandler:
    """Returns a handler for the job of a sensor when the worker gets SIGTERM: `on_signal` for a task that has not submitted the job.

    * Cleared: the job keeps running, and the next try waits for it.
    * Ended by a user: the job is stopped; by default it is suspended, unless another task waits for it.
    * Otherwise only the worker ends. Without a retry left, the job is stopped if `on_cancel` is set.
    """
    ti = context["ti"]

    def handle(cluster: Cluster, trainjob: dict[str, Any], verdict: Verdict | None = None, /) -> str:
        state = TaskId.of(context).state_within(ANSWER_SECONDS)
        if state == "restarting":  # clearing a sensor says nothing about a job that another task has submitted
            return "it keeps running: the task was cleared, and its next try waits for it"
        # A user has ended the task, or no try of it is left.
        if state in ENDED_BY_USER or (on_cancel and state in (*ENDED, ABSENT)):
            policy = str(on_cancel or CancelPolicy.suspend)
            return stop_as_sensor(cluster, trainjob, policy, TaskId.of(context).as_dict())
        has_retry = int(ti.try_number) <= int(getattr(ti, "max_tries", 0) or 0)
        # Another try waits for the job, or a sensor without `on_cancel`, which stops a job for a user only.
        if not on_cancel or has_retry or state in _BEFORE_ANOTHER_WORKER:
            return "it keeps running"
        return cancel_owned_job(cluster, trainjob, CancelPolicy(on_cancel))

    return handle


def _is_taken_over(cluster: Cluster, trainjob: dict[str, Any]) -> bool:
    """Whether another process has adopted the job since: a scheduler that starts anew runs a task again beside its old worker."""
    metadata = trainjob["metadata"]
    try:
        current = cluster.get(TRAINJOB, metadata["name"], metadata["namespace"])
    except ApiError as error:  # what follows reports it, or finds that the job is gone
        log.warning("event=waiter_not_read name=%s error=%s", metadata["name"], error.message)
        return False
    waiter = (current["metadata"].get("annotations") or {}).get(names.WAITER_ANNOTATION)
    return waiter not in (None, this_process())


def on_error(on_cancel: str) -> CancelHandler:
    """Returns a handler for the job when a deadline has passed or the wait has failed."""

    def handle(cluster: Cluster, trainjob: dict[str, Any], verdict: Verdict | None = None, /) -> str:
        return cancel_owned_job(cluster, trainjob, CancelPolicy(on_cancel), verdict=verdict)

    return handle


def stop_previous_try(cluster: Cluster, identity: Any, namespace: str, on_cancel: str) -> None:
    """Stop the job of the previous try, so that this one submits a job of its own. A job that has succeeded is not adopted either.

    For a task that is not durable. Raises ApiError, so that two jobs never run at once.
    """
    found = find_job(cluster, identity, namespace)
    # Nothing can run beside the new job.
    if found is None or is_deleting(found.trainjob) or is_true(found.trainjob, "Failed"):
        return
    job_cluster, trainjob = found
    suspend_job(job_cluster, trainjob, superseded("the next try of its task, which is not durable, starts a new one"))
    if not is_finished(trainjob):
        policy = CancelPolicy.delete if on_cancel == CancelPolicy.delete else CancelPolicy.suspend
        result = cancel_owned_job(job_cluster, trainjob, policy)
        log.info("stopped the job of the previous try name=%s: %s", name_of(trainjob), result)
