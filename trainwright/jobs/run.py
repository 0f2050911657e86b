"""A training job from submission to its end, as one call: what a KFP step and an Airflow task both do.

Whatever ends the wait early - a signal, a deadline, an error of ours - stops the job; nothing is left running unnoticed.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.cancel import suspend_job
from trainwright.jobs.errors import TrainJobDeleted, TrainJobError, TrainJobFailed
from trainwright.jobs.identity import Identity
from trainwright.jobs.phase import Phase, phase_of
from trainwright.jobs.request import TrainRequest
from trainwright.jobs.submit import submit_or_adopt
from trainwright.jobs.wait import Deadlines, Progress, wait_for

log = logging.getLogger(__name__)
_NO_DEADLINES = Deadlines()


class Cancelled(TrainJobError):
    """The wait was ended by SIGTERM or Ctrl-C; the job was suspended and can go on when the step runs again."""


def run_to_end(
    cluster: Cluster,
    request: TrainRequest,
    identity: Identity,
    namespace: str,
    *,
    deadlines: Deadlines = _NO_DEADLINES,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
) -> Obj:
    """Submit or adopt the TrainJob of this step and wait for it; returns it when it has succeeded.

    Ctrl-C and SIGTERM, a deadline and errors while waiting suspend it: its processes end, its checkpoints stay, and the
    same step resumes it. Raises Cancelled, TrainJobFailed with a report, TrainJobDeadline, TrainJobDeleted, and what
    `submit_or_adopt` raises.
    """
    with _signals() as stop:
        submitted = submit_or_adopt(cluster, request, identity, namespace)
        trainjob = submitted.trainjob
        try:
            seen = wait_for(cluster, trainjob, deadlines=deadlines, on_progress=on_progress, stop=stop)
            if phase_of(seen) is Phase.Succeeded:
                return seen
            raise Cancelled(
                f"the wait for TrainJob {submitted.name} was cancelled; it is suspended and goes on when this step runs again"
            )
        except (TrainJobFailed, TrainJobDeleted):
            raise
        except BaseException:
            _suspend(cluster, trainjob)
            raise


def _suspend(cluster: Cluster, trainjob: Obj) -> None:
    try:
        suspend_job(cluster, trainjob)
    except ApiError as error:
        log.error("the job could not be suspended name=%s error=%s", trainjob["metadata"]["name"], error.message)


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """SIGTERM and SIGINT end the wait in order. Outside the main thread signals stay as they are."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
