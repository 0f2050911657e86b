"""A training job from submission to its end, as one call: what a KFP step and an Airflow task both do.

Whatever ends the wait early - a signal, a deadline, an error of ours - stops the job; nothing is left running unnoticed.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import NamedTuple

from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, name_of
from trainwright.api.phase import Phase, phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.cancel import suspended
from trainwright.jobs.clock import Deadlines
from trainwright.jobs.errors import Preempted, TrainJobDeadline, TrainJobDeleted, TrainJobError, TrainJobFailed
from trainwright.jobs.happenings import OnHappenings, untold
from trainwright.jobs.identity import Identity
from trainwright.jobs.live_logs import Live
from trainwright.jobs.preemption import BUDGET, wait_to_resume
from trainwright.jobs.request import TrainRequest
from trainwright.jobs.submit import LatestCheckpoint, Submitted, submit_or_adopt
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
    latest_checkpoint: LatestCheckpoint | None = None,
    was: Sequence[Identity] = (),
    preemption_budget: int = BUDGET,
    deadlines: Deadlines = _NO_DEADLINES,
    tell: OnHappenings = untold,
    logs: Live | None = None,
    on_signal: Leave = suspended,
    on_error: Leave = suspended,
) -> Obj:
    """Submit or adopt the TrainJob of this step and wait for it; returns it when it has succeeded.

    `tell` hears what happens, with `logs` also what the job prints, see `wait_for`.
    Ctrl-C and SIGTERM (`on_signal`), a deadline and errors while waiting (`on_error`) suspend it: its processes end, its
    checkpoints stay, and the same step resumes it. After a preemption the next generation is submitted and waited for, up
    to `preemption_budget` times in the life of the step; each has the deadlines for itself. Raises Cancelled,
    TrainJobFailed with a report, TrainJobDeadline, TrainJobDeleted, and what `submit_or_adopt` raises.
    """
    with ended_by_signals() as stop:

        def generation() -> Followed:
            submitted = submit_or_adopt(
                cluster, request, identity, namespace, latest_checkpoint=latest_checkpoint, was=was, stop=stop
            )
            return _followed(submitted, cluster, deadlines)

        return _resuming(generation, generation, preemption_budget, _Waiting(stop, tell, logs, on_signal, on_error))


def follow_to_end(
    cluster: Cluster,
    trainjob: Obj,
    *,
    again: Callable[[], Submitted] | None = None,
    preemption_budget: int = BUDGET,
    deadlines: Deadlines = _NO_DEADLINES,
    tell: OnHappenings = untold,
    logs: Live | None = None,
    on_signal: Leave = suspended,
    on_error: Leave = suspended,
) -> Obj:
    """As `run_to_end`, for a job that has been submitted; `again` submits its step after a preemption."""
    with ended_by_signals() as stop:

        def next_one() -> Followed:
            assert again is not None
            return _followed(again(), cluster, deadlines)

        budget = preemption_budget if again is not None else 0
        waiting = _Waiting(stop, tell, logs, on_signal, on_error)
        return _resuming(lambda: Followed(cluster, trainjob, deadlines), next_one, budget, waiting)


class Followed(NamedTuple):
    """One generation: where it is, what it is, and how long it may take."""

    cluster: Cluster
    trainjob: Obj
    deadlines: Deadlines


class _Waiting(NamedTuple):
    """How a job is waited for, and left."""

    stop: threading.Event
    tell: OnHappenings
    logs: Live | None
    on_signal: Leave
    on_error: Leave


def _followed(submitted: Submitted, cluster: Cluster, deadlines: Deadlines) -> Followed:
    return Followed(submitted.cluster or cluster, submitted.trainjob, _with_run(deadlines, submitted.run_deadline))


def _resuming(first: Callable[[], Followed], again: Callable[[], Followed], budget: int, waiting: _Waiting) -> Obj:
    """Follow one generation after the other while they are preempted. The budget, kept on the cluster, bounds the loop."""
    followed = first()
    while True:
        try:
            return _to_end(followed, waiting)
        except Preempted as error:
            if not budget:
                raise
            if not wait_to_resume(followed.cluster, error, budget, waiting.stop):
                name = name_of(error.trainjob)
                raise Cancelled(
                    f"TrainJob {name} was preempted, and the wait to resume it was cancelled; nothing runs"
                ) from error
        followed = again()


def _to_end(followed: Followed, waiting: _Waiting) -> Obj:
    cluster, trainjob, deadlines = followed
    try:
        seen = wait_for(cluster, trainjob, deadlines=deadlines, tell=waiting.tell, logs=waiting.logs, stop=waiting.stop)
    except (TrainJobFailed, TrainJobDeleted):
        raise
    except BaseException as error:
        became = leave(cluster, trainjob, waiting.on_error)
        if isinstance(error, TrainJobDeadline):
            error.args = (f"{error}; {became}",)
        raise
    if phase_of(seen) is Phase.Succeeded:
        return seen
    raise Cancelled(f"the wait for TrainJob {name_of(trainjob)} was cancelled; {leave(cluster, trainjob, waiting.on_signal)}")


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
