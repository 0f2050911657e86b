"""What becomes of a TrainJob when its task is ended early: kept for the retry, or stopped, so that nothing runs unwatched."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from trainwright.operators.task_identity import earlier_identities
from trainwright.operators.task_state import TaskId

log = logging.getLogger(__name__)


def on_signal(context: Any, on_cancel: str) -> Callable[[Any, Any], str]:
    """What is done with the job when the worker gets SIGTERM, after what Airflow says of the task at that moment.

    The task still runs, and will be retried: only its worker goes away, so the job keeps running and the retry adopts it.
    It was cleared: the job is superseded, so that the next try starts a new one. That goes for a job that is to be kept, too:
    two would write to one workspace.
    Anything else (marked failed or succeeded, no retry left, Airflow does not answer): the job is stopped.
    """
    ti = context["ti"]

    def leave(cluster: Any, trainjob: Any) -> str:
        from trainwright.jobs.cancel import Stopping, stop_job, suspend_job

        state = TaskId.of(context).state()
        if state == "running" and int(ti.try_number) <= int(getattr(ti, "max_tries", 0) or 0):
            return "it keeps running, and the retry of this task adopts it"
        if state == "restarting" and on_cancel in (Stopping.suspend, Stopping.keep):
            suspend_job(cluster, trainjob, superseded=True)
            return "it is suspended for good: the task was cleared, and starts a new one"
        return stop_job(cluster, trainjob, Stopping(on_cancel))

    return leave


def on_error(on_cancel: str) -> Callable[[Any, Any], str]:
    """What is done with the job when a deadline has passed or the wait has failed."""

    def leave(cluster: Any, trainjob: Any) -> str:
        from trainwright.jobs.cancel import Stopping, stop_job

        return stop_job(cluster, trainjob, Stopping(on_cancel))

    return leave


def stop_earlier(cluster: Any, identity: Any, namespace: str, on_cancel: str) -> None:
    """Before a cleared task starts a new job: stop what it started before it was cleared and nobody has stopped since.

    That is a job whose worker or triggerer was not there to hear of the clear, or one that was to be kept. Raises ApiError:
    better no job than two.
    """
    from trainwright.api import names
    from trainwright.api.conditions import is_finished
    from trainwright.api.objects import annotations_of, name_of
    from trainwright.jobs.both_modes import jobs_of_run
    from trainwright.jobs.cancel import Stopping, stop_job

    how = Stopping.delete if on_cancel == Stopping.delete else Stopping.suspend
    if not (owners := {str(earlier) for earlier in earlier_identities(identity)}):
        return
    for place, trainjob in jobs_of_run(cluster, identity.run, namespace):
        runs = not is_finished(trainjob) and not trainjob["spec"].get("suspend")
        if runs and annotations_of(trainjob).get(names.OWNER_ANNOTATION) in owners:
            became = stop_job(place, trainjob, how)
            log.info("a job of before the clear name=%s: %s", name_of(trainjob), became)
