"""Ends a wait early: gives up the TrainJob, stops a trial of a sweep that is hopeless, and turns SIGTERM and Ctrl-C into an event.

A job that is given up is stopped as asked, with the reason, for everyone who looks at it. A step of Kubeflow Pipelines is killed
within a second of its signal. The handler only wakes a thread: a handler runs in the middle of the main thread's work, which may
hold the very locks that the event or a request needs.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Protocol

from trainwright.api import names
from trainwright.api.errors import ApiError, Conflict, NotFound
from trainwright.api.kinds import EVENT, TRAINJOB
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of, uid_of
from trainwright.api.phase import Verdict, phase_of
from trainwright.api.times import now
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.credentials.credential_patterns import credential_in
from trainwright.jobs.diagnosis.errors import StoppedEarly, TrainJobFailed, verdict_on
from trainwright.jobs.state.attempts import versions_of
from trainwright.jobs.state.cancel import CancelOutcome, cancel_by_suspending
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.suspension import early_stop_reason, suspension_mark

_SOURCE = "trainwright"
_RETRY_SECONDS = 15.0
"""For an API server that fails for a moment: a job that is not stopped runs on, and nobody waits for it."""
_MAX_MESSAGE = 1024
"""Characters of an Event's message."""
log = logging.getLogger(__name__)


class CancelHandler(Protocol):
    """Cancels a job when its wait ends early, because of a signal or an error; returns the outcome as text.

    `verdict` is what the error says of the job: it is recorded on a job that the handler suspends.
    """

    def __call__(self, cluster: Cluster, trainjob: Obj, verdict: Verdict | None = None, /) -> str: ...


def cancel_unwatched_job(cluster: Cluster, trainjob: Obj, how: CancelHandler, cause: BaseException | None = None) -> str:
    """Cancel a job whose wait ended early, by the error `cause` or a signal; returns the outcome as text, including an API error."""
    verdict = _without_credentials(verdict_on(cause)) if cause is not None else None
    # After a signal there is no time for retries, and the cluster may be ending as well.
    client = cluster if cause is None else RetryingCluster(cluster, seconds=_RETRY_SECONDS)
    try:
        outcome = how(client, trainjob) if verdict is None else how(client, trainjob, verdict)
    except ApiError as error:  # the error that has ended the wait is what counts: this becomes a part of it
        log.error("event=cancel_failed name=%s error=%s", name_of(trainjob), error.message)
        return f"it could not be stopped: {error.message}"
    if verdict is not None and outcome.startswith((CancelOutcome.suspended, CancelOutcome.given_up)):
        _publish_event(JobsClient.of(cluster), trainjob, verdict)
    return outcome


def _without_credentials(verdict: Verdict | None) -> Verdict | None:
    """Leave out lines with a credential: who may read the job may not be allowed to read logs."""
    if verdict is None:
        return None
    pods = tuple(replace(pod, message=_safe(pod.message), lines=tuple(map(_safe, pod.lines))) for pod in verdict.pods)
    return replace(verdict, message=_safe(verdict.message), pods=pods, lines=tuple(map(_safe, verdict.lines)))


def _safe(line: str) -> str:
    return line if (what := credential_in(line)) is None else f"(left out: {what})"


def _publish_event(cluster: JobsClient, trainjob: Obj, verdict: Verdict) -> None:
    """Create an Event about the job, or the JobSet that carries it. Without the permission, only the annotation says why."""
    digest = hashlib.sha256(f"{uid_of(trainjob)}/{verdict.time}/{verdict.reason}/{verdict.message}".encode()).hexdigest()[:16]
    moment, message = now(), f"given up by its client: {verdict.message}"
    event: Obj = {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"{name_of(trainjob)}.{digest}", "namespace": namespace_of(trainjob)},
        "involvedObject": {
            "apiVersion": cluster.job_kind.api_version,
            "kind": cluster.job_kind.kind,
            "namespace": namespace_of(trainjob),
            "name": name_of(trainjob),
            "uid": uid_of(trainjob),
        },
        "type": "Warning",
        "reason": verdict.reason,
        "message": message if len(message) <= _MAX_MESSAGE else f"{message[: _MAX_MESSAGE - 4]} ...",
        "source": {"component": _SOURCE},
        "reportingComponent": _SOURCE,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
    try:
        cluster.create(event)
    except ApiError as error:  # the job has the verdict as an annotation
        log.debug("event=verdict_event_not_created name=%s error=%s", name_of(trainjob), error.message)


def stop_failing_job(cluster: Cluster, error: TrainJobFailed) -> str:
    """Stop a job whose pods fail again and again; returns the outcome. A retry of its step submits the next attempt."""
    outcome = cancel_unwatched_job(cluster, error.trainjob, cancel_by_suspending, error)
    log.info("event=failing_job_stopped name=%s outcome=%r", name_of(error.trainjob), outcome)
    return outcome


def stop_early(cluster: Cluster, trainjob: Obj, reason: str) -> bool:
    """Suspend a job that runs, and record why. Its pods end, and what it wrote stays.

    Submitting its step again does not resume it; `resume_job` does. Returns False if the job has ended, is suspended, or no longer
    exists. Raises ApiError, Conflict if it changes all the time.
    """
    for current in versions_of(cluster, trainjob, "stopped"):
        if phase_of(current).is_final or is_deleting(current) or current["spec"].get("suspend"):
            return False
        annotations = {names.STOPPED_EARLY_ANNOTATION: reason, **suspension_mark(current)}
        metadata = {"resourceVersion": current["metadata"]["resourceVersion"], "annotations": annotations}
        with contextlib.suppress(NotFound, Conflict):  # the next try finds out what it has become
            cluster.patch(TRAINJOB, name_of(current), {"spec": {"suspend": True}, "metadata": metadata}, namespace_of(current))
            return True
    return False


def raise_if_stopped_early(trainjob: Obj) -> None:
    """Raise StoppedEarly if the job was stopped early, and not resumed since."""
    if reason := early_stop_reason(trainjob):
        raise StoppedEarly(stopped_early_message(trainjob, reason), trainjob)


def stopped_early_message(trainjob: Obj, reason: str) -> str:
    """Return the message of the error."""
    return f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)} was stopped early: {reason}"


class StopEvent(threading.Event):
    """Set when the process is to end. `at_once` is called by the thread that sets it; it must not raise."""

    at_once: Callable[[], None] | None = None
    was_signalled = False
    """Set by the handler, which takes no lock; the event itself follows within milliseconds."""

    def is_set(self) -> bool:
        return self.was_signalled or super().is_set()

    def stop(self) -> None:
        """Set the event, and act."""
        self.set()
        if self.at_once is not None:
            self.at_once()


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopEvent]:
    """Set the yielded event on SIGTERM and SIGINT. Outside the main thread signal handlers are not changed."""
    event = StopEvent()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def wake(_number: int, _frame: FrameType | None) -> None:
        event.was_signalled = True
        with contextlib.suppress(BlockingIOError):  # full of earlier signals
            os.write(writer, b"\0")

    threading.Thread(target=_relay, args=(reader, event), name="stop-on-signals", daemon=True).start()
    previous = {number: signal.signal(number, wake) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        os.close(writer)


def _relay(reader: int, event: StopEvent) -> None:
    """Stop at the first signal; later ones change nothing. Ends when the other end is closed."""
    with open(reader, "rb", buffering=0) as pipe:
        if pipe.read(1):
            event.stop()
        while pipe.read(64):
            pass
