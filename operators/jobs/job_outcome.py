"""What a task makes of the TrainJob that it waits for: its result, or an error with the job's failure report.

Shared by TrainJobOperator and TrainJobSensor. A task that was deferred has only the trigger's event: the worker that deferred it is
gone, so nothing here depends on what `execute` has set.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, cast

from airflow.sdk import BaseOperator, BaseOperatorLink

from trainwright.operators import cancellation
from trainwright.operators.deferral.deferral_options import warn_of_short_deferral
from trainwright.operators.errors import fail_fast
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.jobs.unreadable_job import name_unreadable_job
from trainwright.operators.reporting.job_report import report_end, report_result
from trainwright.operators.reporting.links import CheckpointLink, LogsLink, TrainJobLink, show_job_links
from trainwright.operators.trigger import TrainJobTrigger, is_awaited_here
from trainwright.operators.values.airflow_api import TaskDeferralError, TaskDeferralTimeout
from trainwright.operators.values.task_state import TaskId
from trainwright.operators.values.text_templates import TextTemplates

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainwright.jobs import StepResult, TrainRequest
    from trainwright.jobs.state.usage import Usage
    from trainwright.operators.reporting.task_event_printer import TaskEventPrinter
    from trainwright.submission.jobs_client import JobsClient

_TEST_BEGIN_SECONDS = 10.0
"""How long a trigger in the process of its task may take to begin."""
_TEST_END_SECONDS = 10.0
"""How long a process that was told to end by Ctrl-C may take."""
BACKSTOP_SECONDS = 120
"""Between the trigger's own deadline and Airflow's timeout, which cancels the trigger without an event."""


class WaitsForTrainJob(TextTemplates):
    """The second half of a task that waits for a TrainJob. The first half, `execute`, is the subclass's, and so are `_find_job`,
    `_wait_in_worker`, `_result`, `_has_results`, `_fails_on_divergence` and `_folder`."""

    conn_id: str | None
    submission_mode: str
    on_cancel: str
    min_defer_seconds: float
    log_poll_interval: float
    _used: Usage | None = None
    """What the job used, as its trigger has found."""
    operator_extra_links: Collection[BaseOperatorLink] = (TrainJobLink(), LogsLink(), CheckpointLink())

    @fail_fast()
    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Turn the trigger's event into the task's result, or into an error with the job's failure report."""
        show_job_links(self, context, event)
        with report_end(self, event.get("seconds") or {}):
            return self._after_wait(context, event)

    def _after_wait(self, context: Context, event: dict[str, Any]) -> Any:
        from trainwright.api.errors import NotFound
        from trainwright.jobs import TrainJobDeadline, TrainJobDeleted
        from trainwright.jobs.diagnosis.errors import Diverged, StoppedEarly, stuck_error
        from trainwright.jobs.diagnosis.failure_class import deadline_of, end_of, failure_of
        from trainwright.jobs.state.cancel import CancelOutcome
        from trainwright.jobs.state.divergence import Divergence
        from trainwright.jobs.state.pod_history import PodHistory
        from trainwright.jobs.wait.give_up import cancel_unwatched_job, stop_failing_job

        name, namespace, outcome = event["name"], event["namespace"], event["outcome"]
        if outcome == "succeeded":
            return self._after_success(context, event)
        if outcome == "deleted":
            raise TrainJobDeleted(event["message"])
        try:
            cluster, trainjob = self._read_job_of(event)
        except NotFound:
            raise TrainJobDeleted(f"TrainJob {namespace}/{name} {outcome} and was deleted since: {event['message']}") from None
        if outcome == "error":  # of the triggerer alone: the worker reaches the job
            self.log.warning("TrainJob %s/%s is waited for in the worker: %s", namespace, name, event["message"])
            return self._wait_in_worker(context, cluster, trainjob)
        if outcome == "stopped-early":
            raise StoppedEarly(event["message"], trainjob)
        if outcome == "failed":
            history = PodHistory.from_dict(event.get("observed") or {})
            return self._after_failure(context, cluster, end_of(cluster, trainjob, history), event.get("until"))
        if outcome == "failing":
            history = PodHistory.from_dict(event.get("observed") or {})
            failure = failure_of(cluster, trainjob, history, stopped=event["message"])
            if stop_failing_job(cluster, failure) == CancelOutcome.ended:  # its own end counts
                return self._wait_in_worker(context, cluster, trainjob)
            return self._after_failure(context, cluster, failure, event.get("until"))
        stuck: TrainJobDeadline | Diverged
        if outcome == "deadline":
            history = PodHistory.from_dict(event.get("observed") or {})
            message = event["message"] if event.get("what") else f"{event['message']}: {self._time_limit()}"
            stuck = deadline_of(cluster, trainjob, message, event.get("what") or "run", history)
        elif outcome == "diverged":
            stuck = Diverged(trainjob, Divergence.from_dict(event["divergence"]))
        else:
            stuck = stuck_error(event["what"], event["message"])
        ended = cancel_unwatched_job(cluster, trainjob, cancellation.on_error(self._on_give_up), stuck)
        if isinstance(stuck, TrainJobDeadline) and ended == CancelOutcome.ended:  # its own end counts
            return self._wait_in_worker(context, cluster, trainjob)
        stuck.add_outcome(ended)
        raise stuck

    @property
    def _on_give_up(self) -> str:
        """What to do with the job when the wait ends without a user's decision: a deadline, a job that is stuck or diverges."""
        raise NotImplementedError

    @property
    def _mode(self) -> str:
        """How TrainJobs are submitted, empty if nobody says."""
        raise NotImplementedError

    def _time_limit(self) -> str:
        """Which time limit of Airflow the task has exceeded, and its value."""
        limit = self.execution_timeout
        return f"the execution_timeout of its task is {limit.total_seconds():g} s" if limit else "the time limit of its task"

    def _read_job_of(self, event: dict[str, Any]) -> tuple[JobsClient, dict[str, Any]]:
        """The cluster, and the job of an event. Raises NotFound, and the errors of `name_unreadable_job`."""
        from trainwright.api.kinds import TRAINJOB

        with name_unreadable_job(event):
            cluster = self._cluster(event.get("submission_mode") or "")
            return cluster, cluster.get(TRAINJOB, event["name"], event["namespace"])

    @fail_fast()
    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Like the base class, but also handles a timeout and a failed trigger, for which Airflow calls no method.

        After a timeout, `on_cancel` applies and the task fails. After a failed trigger, the worker waits for the job.
        """
        from trainwright.jobs.wait.give_up import cancel_unwatched_job

        if hasattr(self, next_method):
            return super().resume_execution(next_method, next_kwargs, context)
        found = self._find_job(context)
        if found is None:
            return super().resume_execution(next_method, next_kwargs, context)
        cluster, trainjob = found
        name = trainjob["metadata"]["name"]
        try:
            BaseOperator.resume_execution(cast(BaseOperator, self), next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            result = cancel_unwatched_job(cluster, trainjob, cancellation.on_error(self._on_give_up))
            self.log.error("TrainJob %s took too long: %s; %s", name, self._time_limit(), result)
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralError as error:
            self.log.warning("the trigger failed (%s); waiting for TrainJob %s in the worker", error, name)
        with report_end(self):
            return self._wait_in_worker(context, cluster, trainjob)

    def xcom_value(self, result: StepResult) -> Any:
        """The task's XCom, from a `StepResult`."""
        return result.as_dict()

    def _done(self, context: Context, result: StepResult, shown_start: str = "") -> Any:
        """The task's XCom. Its `StepResult` is described in the events of the task's outlets.

        What the training started from is one line of the log, unless `shown_start` is it, or a printer has shown it.
        """
        printer = vars(self).get("_printer")
        if used := self._used or (printer.usage if printer is not None else None):
            result = replace(result, usage=used)
        if result.started_from not in ("", shown_start, printer.started_from if printer is not None else ""):
            self.log.info("Started from %s", result.started_from)
        report_result(self, context, result)
        return self.xcom_value(result)

    def _after_success(self, context: Context, event: dict[str, Any]) -> Any:
        """Read the job's log: what it has logged, and its results. If the job was deleted in the meantime, the task still succeeds.

        Raises Diverged if its last figures are not finite.
        """
        from trainwright.api.errors import NotFound
        from trainwright.jobs import StepResult
        from trainwright.jobs.state.run_folder import folder_of_job
        from trainwright.jobs.state.started_from import NOT_KNOWN, read_started_from
        from trainwright.jobs.state.usage import Usage

        name, namespace, metrics = event["name"], event["namespace"], event.get("metrics") or {}
        start = shown_start = event.get("started_from") or ""
        self._used = Usage.from_dict(event.get("usage") or {})
        try:
            cluster, trainjob = self._read_job_of(event)
        except NotFound:
            self._judge_end(None, {"metadata": {"name": name, "namespace": namespace}}, metrics)
            if self._has_results():
                self.log.warning("TrainJob %s was deleted since it succeeded; its results are lost", name)
            folder, start = self._folder(context), start or f"{NOT_KNOWN}: it was deleted since"
        else:
            if self._has_results() or self._fails_on_divergence() or metrics:
                self._judge_end(cluster, trainjob, metrics)
            if self._has_results():
                return self._result(context, cluster, trainjob, metrics)
            folder, start = folder_of_job(trainjob), start or read_started_from(cluster, trainjob)
        return self._done(context, StepResult(name, namespace, metrics, None, folder, start), shown_start)

    def _judge_end(self, cluster: JobsClient | None, trainjob: dict[str, Any], metrics: dict[str, str] | None = None) -> None:
        """Pass on what a job that has succeeded has logged. Raises Diverged if its last figures are not finite.

        `metrics` are those that it was seen to report last; of a job that is gone there is nothing else, and no `cluster` is given.
        """
        from trainwright.jobs.diagnosis.errors import Diverged
        from trainwright.jobs.logs.training_log import TrainingLog, read_training_log
        from trainwright.jobs.state.divergence import DivergenceDetector
        from trainwright.jobs.state.progress import reported_values

        found = TrainingLog() if cluster is None else read_training_log(cluster, trainjob)
        self._observe_logged(trainjob, found.entries)
        detector = DivergenceDetector()
        detector.observe({**(metrics or {}), **reported_values(trainjob)})
        if self._fails_on_divergence() and (diverged := found.divergence_with(detector)):
            raise Diverged(trainjob, diverged)

    def _observe_logged(self, trainjob: dict[str, Any], entries: Iterable[Mapping[str, float]]) -> None:
        """What a training has logged, each entry with its step; for trackers, which a deferred task has not fed."""

    def _fails_on_divergence(self) -> bool:
        """Whether a training whose figures are not finite fails the task."""
        raise NotImplementedError

    def _after_failure(self, context: Context, cluster: JobsClient, failure: Exception, until: float | None) -> Any:
        raise failure

    def _find_job(self, context: Context) -> tuple[JobsClient, dict[str, Any]] | None:
        """The cluster in the job's mode, and the job; None if there is none."""
        raise NotImplementedError

    def _wait_in_worker(self, context: Context, cluster: JobsClient, trainjob: dict[str, Any]) -> Any:
        """The task's result, after the job has succeeded."""
        raise NotImplementedError

    def _result(
        self, context: Context, cluster: JobsClient, trainjob: dict[str, Any], metrics: dict[str, str] | None = None
    ) -> Any:
        """The task's result, from a job that has succeeded."""
        raise NotImplementedError

    def _has_results(self) -> bool:
        """Whether the result of a job that has succeeded cannot be known without reading it."""
        raise NotImplementedError

    def _folder(self, context: Context) -> str:
        """The run's folder on its workspace, as far as it is known without reading the job; else empty."""
        raise NotImplementedError

    def _wait_in_triggerer(
        self,
        context: Context,
        trainjob: dict[str, Any],
        request: TrainRequest,
        *,
        until: float | None,
        mode: str,
        lease_seconds: int = 0,
        on_cancel: str = "",
        on_clear: str = "",
    ) -> NoReturn:
        """Defer until the job has ended, or until `until`, in seconds since the epoch. `request` says how to wait.

        Raises TaskDeferred.
        """
        from trainwright.jobs.wait.waiting import deadlines_of, restarts_of_request

        warn_of_short_deferral(self.log, self.min_defer_seconds)
        left, metadata = until - time.time() if until is not None else None, trainjob["metadata"]
        self.__dict__["_deferred_job"] = trainjob, str(mode)
        self.defer(
            trigger=TrainJobTrigger(
                conn_id=self.conn_id or None,
                namespace=metadata["namespace"],
                name=metadata["name"],
                uid=metadata["uid"],
                task=TaskId.of(context).as_dict(),
                on_cancel=on_cancel or self._on_give_up,
                on_clear=on_clear,
                deadlines=asdict(deadlines_of(request)),
                until=until,
                min_defer_seconds=self.min_defer_seconds,
                submission_mode=str(mode),
                logs=request.logging.words,
                log_bytes=request.logging.log_bytes,
                log_poll_interval=self.log_poll_interval,
                fail_if_stuck=request.limits.fail_if_stuck,
                fail_on_divergence=request.limits.fail_on_divergence,
                restarts=restarts_of_request(request),
                lost_node_timeout_seconds=request.limits.lost_node_timeout_seconds,
                lease_seconds=lease_seconds,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=max(left, 0) + self.min_defer_seconds + BACKSTOP_SECONDS) if left is not None else None,
        )

    def on_kill(self) -> None:
        """Stop the job and end the process, if a trigger waits for it in this very process: `airflow tasks test` and `dags test`.

        Airflow calls this when it gets SIGTERM, and would go on waiting. A worker that waits itself has a handler of its own, see
        `stop_on_signals`; one that has deferred its task and is just ending leaves the job to the triggerer. A signal comes in the
        middle of other work, which may hold any lock: a thread does all of it.
        """
        if "_deferred_job" in vars(self):
            threading.Thread(target=self._end_test, name="end-of-test", daemon=True).start()

    def _end_test(self) -> None:
        """Stop the job of a trigger in this process, and end the process: by Ctrl-C, and at last by itself.

        Without such a trigger within a moment, which it may need to begin, nothing is done.
        """
        from trainwright.jobs.wait.give_up import cancel_unwatched_job

        trainjob, mode = vars(self)["_deferred_job"]
        deadline = time.monotonic() + _TEST_BEGIN_SECONDS
        while not is_awaited_here(trainjob["metadata"]["uid"]):
            if time.monotonic() >= deadline:
                return
            time.sleep(0.05)
        result = cancel_unwatched_job(self._cluster(mode), trainjob, cancellation.on_error(self._on_give_up))
        self.log.warning("SIGTERM; TrainJob %s: %s", trainjob["metadata"]["name"], result)
        signal.pthread_kill(cast(int, threading.main_thread().ident), signal.SIGINT)
        time.sleep(_TEST_END_SECONDS)
        os._exit(128 + signal.SIGTERM)

    def _cluster(self, mode: str = "") -> JobsClient:
        return TrainwrightHook(self.conn_id, mode or self._mode).get_conn()

    def _event_printer(self) -> TaskEventPrinter:
        from trainwright.operators.reporting.task_event_printer import TaskEventPrinter

        self._printer = TaskEventPrinter(lambda line: self.log.info("%s", line))
        return self._printer
