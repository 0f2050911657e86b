"""What a task does with its TrainJob when it is ended early: keep it for the retry, or stop it, so that nothing runs unwatched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainwright.operators.task_state import TaskId


def on_signal(context: Any, stopping: str) -> Callable[[Any, Any], str]:
    """What is done with the job when the worker gets SIGTERM, after what Airflow says of the task at that moment.

    The task still runs, and will be retried: only its worker goes away, so the job keeps running and the retry adopts it.
    It was cleared: the job is superseded, so that the next try starts a new one.
    Anything else (marked failed or succeeded, no retry left, Airflow does not answer): the job is stopped.
    """
    ti = context["ti"]

    def leave(cluster: Any, trainjob: Any) -> str:
        from trainwright.jobs.cancel import Stopping, stop_job, suspend_job

        state = TaskId.of(context).state()
        if state == "running" and int(ti.try_number) <= int(getattr(ti, "max_tries", 0) or 0):
            return "it keeps running, and the retry of this task adopts it"
        if state == "restarting" and stopping == Stopping.suspend:
            suspend_job(cluster, trainjob, superseded=True)
            return "it is suspended for good: the task was cleared, and starts a new one"
        return stop_job(cluster, trainjob, Stopping(stopping))

    return leave


def on_error(stopping: str) -> Callable[[Any, Any], str]:
    """What is done with the job when a deadline has passed or the wait has failed."""

    def leave(cluster: Any, trainjob: Any) -> str:
        from trainwright.jobs.cancel import Stopping, stop_job

        return stop_job(cluster, trainjob, Stopping(stopping))

    return leave
