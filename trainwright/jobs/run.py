"""A training job from submission to its end, as one call: what a KFP step and an Airflow task both do.

Whatever ends the wait early - a signal, a deadline, an error of ours - stops the job; nothing is left running unnoticed.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, name_of
from trainwright.api.phase import Phase, phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.cancel import suspended
from trainwright.jobs.clock import Deadlines
from trainwright.jobs.errors import TrainJobDeadline, TrainJobDeleted, TrainJobError, TrainJobFailed
from trainwright.jobs.happenings import OnHappenings, untold
from trainwright.jobs.identity import Identity
from trainwright.jobs.live_logs import Live
from trainwright.jobs.request import TrainRequest
from trainwright.jobs.submit import submit_or_adopt
from trainwright.jobs.wait import wait_for

Leave = Callable[[Cluster, Obj], str]
"""What is done with a job that nobody waits for any more; returns what became of it, in words."""
log = logging.getLogger(__name__)
_NO_DEADLINES = Deadlines()


class Cancelled(TrainJobError):
    """The wait was ended by SIGTERM or Ctrl-C; the message says what became of the job."""

    retryable = True


def run_to_end(
    cluster: Cluster,
    request: TrainRequest,
    identity: Identity,
    namespace: str,
    *,
    deadlines: Deadlines = _NO_DEADLINES,
    tell: OnHappenings = untold,
    logs: Live | None = None,
    on_signal: Leave = suspended,
    on_error: Leave = suspended,
) -> Obj:
    """Submit or adopt the TrainJob of this step and wait for it; returns it when it has succeeded.

    `tell` hears what happens, with `logs` also what the job prints, see `wait_for`.
    Ctrl-C and SIGTERM (`on_signal`), a deadline and errors while waiting (`on_error`) suspend it: its processes end, its
    checkpoints stay, and the same step resumes it. Raises Cancelled, TrainJobFailed with a report, TrainJobDeadline,
    TrainJobDeleted, and what `submit_or_adopt` raises.
    """
    with ended_by_signals() as stop:
        submitted = submit_or_adopt(cluster, request, identity, namespace, stop=stop)
        deadlines = _with_run(deadlines, submitted.run_deadline)
        return _to_end(cluster, submitted.trainjob, stop, deadlines, tell, logs, on_signal, on_error)


def follow_to_end(
    cluster: Cluster,
    trainjob: Obj,
    *,
    deadlines: Deadlines = _NO_DEADLINES,
    tell: OnHappenings = untold,
    logs: Live | None = None,
    on_signal: Leave = suspended,
    on_error: Leave = suspended,
) -> Obj:
    """As `run_to_end`, for a job that has been submitted."""
    with ended_by_signals() as stop:
        return _to_end(cluster, trainjob, stop, deadlines, tell, logs, on_signal, on_error)


def _to_end(
    cluster: Cluster,
    trainjob: Obj,
    stop: threading.Event,
    deadlines: Deadlines,
    tell: OnHappenings,
    logs: Live | None,
    on_signal: Leave,
    on_error: Leave,
) -> Obj:
    try:
        seen = wait_for(cluster, trainjob, deadlines=deadlines, tell=tell, logs=logs, stop=stop)
    except (TrainJobFailed, TrainJobDeleted):
        raise
    except BaseException as error:
        became = leave(cluster, trainjob, on_error)
        if isinstance(error, TrainJobDeadline):
            error.args = (f"{error}; {became}",)
        raise
    if phase_of(seen) is Phase.Succeeded:
        return seen
    raise Cancelled(f"the wait for TrainJob {name_of(trainjob)} was cancelled; {leave(cluster, trainjob, on_signal)}")


def _with_run(deadlines: Deadlines, seconds: int | None) -> Deadlines:
    """With the deadline of the request, where the cluster keeps none."""
    if seconds is None:
        return deadlines
    return replace(deadlines, run=float(seconds) if deadlines.run is None else min(deadlines.run, float(seconds)))


def leave(cluster: Cluster, trainjob: Obj, how: Leave) -> str:
    """Leave a job that nobody waits for any more; says what became of it, also where the cluster does not answer."""
    try:
        return how(cluster, trainjob)
    except ApiError as error:
        log.error("the job could not be stopped name=%s error=%s", name_of(trainjob), error.message)
        return f"it could not be stopped: {error.message}"


@contextmanager
def ended_by_signals() -> Iterator[threading.Event]:
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
