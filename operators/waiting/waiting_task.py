"""What a task makes of the TrainJob that it waits for: its result, or an error with the job's failure report.

Shared by the trainings of TrainJobOperator and the jobs of TrainJobSensor. A task that was deferred has only the trigger's event:
the worker that deferred it is gone, so each entry of Airflow makes a new object, and nothing here depends on an earlier one. If it
cannot read its job, such as with credentials that have expired, what its trigger said counts.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, cast

from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import uid_of
from trainwright.cluster import NoCluster
from trainwright.jobs import ImagePullFailed, StepResult, TrainJobDeadline, TrainJobDeleted, TrainJobFailed, TrainRequest
from trainwright.jobs.diagnosis.errors import Diverged, StoppedEarly, stuck_error
from trainwright.jobs.diagnosis.failure_class import deadline_of, end_of, failure_of
from trainwright.jobs.logs.training_log import TrainingLog, read_training_log
from trainwright.jobs.state.cancel import CancelOutcome
from trainwright.jobs.state.pod_history import PodHistory
from trainwright.jobs.state.pods import NOT_KNOWN, read_started_from
from trainwright.jobs.state.progress import Divergence, DivergenceDetector, reported_values
from trainwright.jobs.state.run_folder import folder_of_job
from trainwright.jobs.state.usage import NO_USAGE
from trainwright.jobs.wait.give_up import CancelHandler, cancel_unwatched_job, stop_failing_job
from trainwright.jobs.wait.job_events import Logged
from trainwright.jobs.wait.waiting import deadlines_of, restarts_of_request
from trainwright.operators import cancellation
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.reporting import task_events
from trainwright.operators.reporting.lineage import describe_outlets, workspace_uri
from trainwright.operators.reporting.links import show_job_links
from trainwright.operators.reporting.task_events import TaskEventPrinter
from trainwright.operators.trigger import TrainJobTrigger, is_awaited_here
from trainwright.operators.values.airflow_api import TaskId
from trainwright.operators.values.rendered_values import warn_of_short_deferral
from trainwright.operators.waiting.tracked_task import TrainingObserver
from trainwright.steps.training.kfp_outputs import finite_metrics
from trainwright.submission.jobs_client import JobsClient

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context


_TEST_BEGIN_SECONDS = 10.0
"""How long a trigger in the process of its task may take to begin."""
_TEST_END_SECONDS = 10.0
"""How long a process that was told to end by Ctrl-C may take."""
BACKSTOP_SECONDS = 120
"""Between the trigger's own deadline and Airflow's timeout, which cancels the trigger without an event."""
Job = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class WaitOptions:
    """The parameters of an operator that waits, rendered: those that are neither Airflow's nor settings of a request."""

    conn_id: str | None
    min_defer_seconds: float
    log_poll_interval: float
    xcom_value: Callable[[StepResult], Any]
    """Makes the task's XCom."""


class WaitingTask(ABC):
    """One entry of Airflow into a task that waits for a TrainJob.

    Args:
        operator: The task, for what Airflow knows of it: its log, its outlets, its links, its time limits.
        context: The context of this entry.
        options: Its parameters.
        request: How to wait; for a task that submits its job, also what.
    """

    on_give_up: str
    """What to do with the job when the wait ends without a user's decision: a deadline, a job that is stuck or diverges."""
    mode: str
    """How TrainJobs are submitted, empty if nobody says."""
    has_results: bool
    """Whether the result of a job that has succeeded cannot be known without reading it."""
    folder: str
    """The run's folder on its workspace, as far as it is known without reading the job; else empty."""
    observer: TrainingObserver | None = None
    """Gets what the training has logged, for trackers, which a triggerer does not feed."""

    def __init__(self, operator: BaseOperator, context: Context, options: WaitOptions, request: TrainRequest):
        self.operator, self.context, self.request, self.log = operator, context, request, operator.log
        self.options = options
        self.printer = TaskEventPrinter(lambda line: operator.log.info("%s", line))
        self.result: StepResult | None = None
        """What the job came to, once it has succeeded; lineage is made from it."""
        self._deferred: tuple[Job, str] | None = None
        """The job that this entry has left to a trigger, and its mode."""

    @abstractmethod
    def find_job(self) -> tuple[JobsClient, Job] | None:
        """The cluster in the job's mode, and the job; None if there is none."""

    @abstractmethod
    def wait_in_worker(self, cluster: JobsClient, trainjob: Job) -> Any:
        """The task's result, after the job has succeeded."""

    @abstractmethod
    def read_result(self, cluster: JobsClient, trainjob: Job, metrics: dict[str, str] | None = None) -> Any:
        """The task's result, from a job that has succeeded."""

    def after_failure(self, cluster: JobsClient, failure: Exception, until: float | None) -> Any:
        """The task's result in spite of the failure of its job; raises the failure."""
        raise failure

    @property
    def time_limit(self) -> str:
        """Which time limit of Airflow the task has exceeded, and its value."""
        limit = self.operator.execution_timeout
        return f"the execution_timeout of its task is {limit.total_seconds():g} s" if limit else "the time limit of its task"

    @property
    def cancel_on_error(self) -> CancelHandler:
        return cancellation.on_error(self.on_give_up)

    def connect(self, mode: str = "") -> JobsClient:
        return TrainwrightHook(self.options.conn_id, mode or self.mode).get_conn()

    def complete(self, event: dict[str, Any]) -> Any:
        """The task's result after the event of its trigger. Raises the job's failure, with its report, or TaskDeferred again."""
        show_job_links(self.operator, self.context, event, self.options.conn_id)
        self.printer.resume_from(event)
        with report_end(self.printer):
            return self._after_wait(event)

    def give_up_late(self, cluster: JobsClient, trainjob: Job) -> None:
        """Handle the job of a task whose time is over, as Airflow says itself."""
        result = cancel_unwatched_job(cluster, trainjob, self.cancel_on_error)
        self.log.error("TrainJob %s took too long: %s; %s", trainjob["metadata"]["name"], self.time_limit, result)

    def wait_after_failed_trigger(self, cluster: JobsClient, trainjob: Job, error: Exception) -> Any:
        """The task's result, which the worker waits for in place of the trigger."""
        name = trainjob["metadata"]["name"]
        self.log.warning("the trigger failed (%s); waiting for TrainJob %s in the worker", error, name)
        with report_end(self.printer):
            return self.wait_in_worker(cluster, trainjob)

    def _after_wait(self, event: dict[str, Any]) -> Any:
        name, namespace, outcome = event["name"], event["namespace"], event["outcome"]
        if outcome == "succeeded":
            return self._after_success(event)
        if outcome == "deleted":
            raise TrainJobDeleted(event["message"])
        try:
            cluster, trainjob = self.read_job_of(event)
        except NotFound:
            raise TrainJobDeleted(f"TrainJob {namespace}/{name} {outcome} and was deleted since: {event['message']}") from None
        if outcome == "error":  # of the triggerer alone: the worker reaches the job
            self.log.warning("TrainJob %s/%s is waited for in the worker: %s", namespace, name, event["message"])
            return self.wait_in_worker(cluster, trainjob)
        if outcome == "stopped-early":
            raise StoppedEarly(event["message"], trainjob)
        history = PodHistory.from_dict(event.get("observed") or {})
        if outcome == "failed":
            return self.after_failure(cluster, end_of(cluster, trainjob, history), event.get("until"))
        if outcome == "failing":
            failure = failure_of(cluster, trainjob, history, stopped=event["message"])
            if stop_failing_job(cluster, failure) == CancelOutcome.ended:  # its own end counts
                return self.wait_in_worker(cluster, trainjob)
            return self.after_failure(cluster, failure, event.get("until"))
        stuck: TrainJobDeadline | Diverged
        if outcome == "deadline":
            message = event["message"] if event.get("what") else f"{event['message']}: {self.time_limit}"
            stuck = deadline_of(cluster, trainjob, message, event.get("what") or "run", history)
        elif outcome == "diverged":
            stuck = Diverged(trainjob, Divergence.from_dict(event["divergence"]))
        else:
            stuck = stuck_error(event["what"], event["message"])
        ended = cancel_unwatched_job(cluster, trainjob, self.cancel_on_error, stuck)
        if isinstance(stuck, TrainJobDeadline) and ended == CancelOutcome.ended:  # its own end counts
            return self.wait_in_worker(cluster, trainjob)
        stuck.add_outcome(ended)
        raise stuck

    def _after_success(self, event: dict[str, Any]) -> Any:
        """Read the job's log: what it has logged, and its results. If the job was deleted in the meantime, the task still succeeds.

        Raises Diverged if its last figures are not finite.
        """
        name, namespace, metrics = event["name"], event["namespace"], event.get("metrics") or {}
        start = self.printer.started_from
        try:
            cluster, trainjob = self.read_job_of(event)
        except NotFound:  # deleted while the event waited for a worker; it has succeeded all the same
            self.judge_end(None, {"metadata": {"name": name, "namespace": namespace}}, metrics)
            if self.has_results:
                self.log.warning("TrainJob %s was deleted since it succeeded; its results are lost", name)
            folder, start = self.folder, start or f"{NOT_KNOWN}: it was deleted since"
        else:
            if self.has_results or self.request.limits.fail_on_divergence or metrics:
                self.judge_end(cluster, trainjob, metrics)
            if self.has_results:
                return self.read_result(cluster, trainjob, metrics)
            folder, start = folder_of_job(trainjob), start or read_started_from(cluster, trainjob)
        return self.done(StepResult(name, namespace, metrics, None, folder, start))

    def read_job_of(self, event: dict[str, Any]) -> tuple[JobsClient, Job]:
        """The cluster, and the job of an event. Raises NotFound, and the errors of `name_unreadable_job`.

        While the event waited for a worker, the job may have been deleted, and another one created with its name.
        """
        with name_unreadable_job(event):
            cluster = self.connect(event.get("submission_mode") or "")
            trainjob = cluster.get(TRAINJOB, event["name"], event["namespace"])
        if (uid := event.get("uid")) and uid_of(trainjob) != uid:
            raise NotFound(f"TrainJob {event['namespace']}/{event['name']} is another one now")
        return cluster, trainjob

    def judge_end(self, cluster: JobsClient | None, trainjob: Job, metrics: dict[str, str] | None = None) -> None:
        """Pass on what a job that has succeeded has logged. Raises Diverged if its last figures are not finite.

        `metrics` are those that it was seen to report last; of a job that is gone there is nothing else, and no `cluster` is given.
        """
        found = TrainingLog() if cluster is None else read_training_log(cluster, trainjob)
        if found.entries and self.observer is not None:
            self.observer.begin(trainjob)
            self.observer((Logged(found.entries),))
        detector = DivergenceDetector()
        detector.observe({**(metrics or {}), **reported_values(trainjob)})
        if self.request.limits.fail_on_divergence and (diverged := found.divergence_with(detector)):
            raise Diverged(trainjob, diverged)

    def done(self, result: StepResult) -> Any:
        """The task's XCom. Its result is described in the events of the task's outlets.

        What the training started from is one line of the log, unless it was shown while it was awaited.
        """
        if result.usage == NO_USAGE:
            result = replace(result, usage=self.printer.usage)
        if result.started_from not in ("", self.printer.started_from):
            self.log.info("Started from %s", result.started_from)
        self.result = result
        uri, metrics = (
            workspace_uri(str(self.request.workspace or ""), result.folder),
            finite_metrics(result.metrics, result.results),
        )
        facts = {"uri": uri, "trainjob": result.trainjob, "namespace": result.namespace, "metrics": metrics}
        describe_outlets(self.operator, self.context, **facts)
        return self.options.xcom_value(result)

    def defer(
        self,
        trainjob: Job,
        *,
        until: float | None,
        mode: str,
        lease_seconds: int = 0,
        on_cancel: str = "",
        on_clear: str = "",
    ) -> NoReturn:
        """Defer until the job has ended, or until `until`, in seconds since the epoch. Raises TaskDeferred."""
        options, limits, metadata = self.options, self.request.limits, trainjob["metadata"]
        warn_of_short_deferral(self.log, options.min_defer_seconds)
        left = until - time.time() if until is not None else None
        self._deferred = trainjob, str(mode)
        self.operator.defer(
            trigger=TrainJobTrigger(
                conn_id=options.conn_id or None,
                namespace=metadata["namespace"],
                name=metadata["name"],
                uid=metadata["uid"],
                task=TaskId.of(self.context).as_dict(),
                on_cancel=on_cancel or self.on_give_up,
                on_clear=on_clear,
                deadlines=asdict(deadlines_of(self.request)),
                until=until,
                min_defer_seconds=options.min_defer_seconds,
                submission_mode=str(mode),
                logs=self.request.logging.words,
                log_bytes=self.request.logging.log_bytes,
                log_poll_interval=options.log_poll_interval,
                fail_if_stuck=limits.fail_if_stuck,
                fail_on_divergence=limits.fail_on_divergence,
                restarts=restarts_of_request(self.request),
                lost_node_timeout_seconds=limits.lost_node_timeout_seconds,
                lease_seconds=lease_seconds,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=max(left, 0) + options.min_defer_seconds + BACKSTOP_SECONDS) if left is not None else None,
        )

    def end_test(self) -> None:
        """Stop the job and end the process, if a trigger waits for it in this very process: `airflow tasks test` and `dags test`.

        Airflow says so when it gets SIGTERM, and would go on waiting. A worker that waits itself has another handler, see
        `stop_on_signals`; one that has deferred its task and is just ending leaves the job to the triggerer. A signal comes in the
        middle of other work, which may hold any lock: a thread does all of it.
        """
        if self._deferred is not None:
            threading.Thread(target=self._end_test, args=self._deferred, name="end-of-test", daemon=True).start()

    def _end_test(self, trainjob: Job, mode: str) -> None:
        """Stop the job of a trigger in this process, and end the process: by Ctrl-C, and at last at once.

        Without such a trigger within a moment, which it may need to begin, nothing is done.
        """
        deadline = time.monotonic() + _TEST_BEGIN_SECONDS
        while not is_awaited_here(trainjob["metadata"]["uid"]):
            if time.monotonic() >= deadline:  # the triggerer has the trigger: this process is a worker that ends
                return
            time.sleep(0.05)
        result = cancel_unwatched_job(self.connect(mode), trainjob, self.cancel_on_error)
        self.log.warning("SIGTERM; TrainJob %s: %s", trainjob["metadata"]["name"], result)
        signal.pthread_kill(cast(int, threading.main_thread().ident), signal.SIGINT)
        time.sleep(_TEST_END_SECONDS)
        os._exit(128 + signal.SIGTERM)


@contextmanager
def report_end(printer: TaskEventPrinter) -> Iterator[None]:
    """Count the job whose end is awaited in the block in Airflow's metrics, and record the times that the printer has measured.

    A block that raises anything but the failure, the divergence, the deletion or the deadline of a job (a deferral, a cancellation,
    an early stop, an error of the task) counts nothing.
    """
    outcome = ""
    try:
        yield
        outcome = "succeeded"
    except (Diverged, ImagePullFailed, TrainJobDeadline, TrainJobDeleted, TrainJobFailed):
        # These are ends of the job, unlike a deferral or a cancellation.
        outcome = "failed"
        raise
    finally:
        if outcome:
            task_events.count(outcome)
            task_events.record_times(printer.seconds)


@contextmanager
def name_unreadable_job(event: Mapping[str, Any]) -> Iterator[None]:
    """Read the job of a trigger's event in the block. Raises its errors, with the job and what the event says in the message.

    NotFound stays as it is: it says something of the job.
    """
    try:
        yield
    except NotFound:  # it says something of the job
        raise
    except (ApiError, NoCluster) as error:
        said = _said(event)
        text = said if str(error) in said else f"{said}; it cannot be read: {error}"
        error.args = (text,)
        if isinstance(error, ApiError):
            error.message = text
        raise


def _said(event: Mapping[str, Any]) -> str:
    name, outcome, message = event["name"], event["outcome"], event["message"]
    job = f"TrainJob {event['namespace']}/{name}" if event["namespace"] else f"TrainJob {name}"
    if outcome != "error":  # the trigger has seen the end of the job
        return f"{job} {outcome}: {message}" if message else f"{job} {outcome}"
    return message if message.startswith(job) else f"{job} goes on, but is not watched any more: {message}"
