"""What TrainJobOperator does in one entry of Airflow: submit or adopt the job of its training, wait for it, resume it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwright.checkpoints.pointers import latest_export_lookup
from trainwright.jobs import Identity, Phase, Preempted, Submission, Submitted, Waiting, phase_of, run_step, submit_or_adopt
from trainwright.jobs.diagnosis import resubmission
from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.jobs.logs.poll_logs import PolledLogs, shown_until
from trainwright.jobs.state.progress import progress_of
from trainwright.jobs.state.run_folder import folder_of_job
from trainwright.jobs.submit.job_lookup import find_job
from trainwright.jobs.submit.submission import delete_credentials
from trainwright.jobs.wait.give_up import CancelHandler, StopEvent, cancel_unwatched_job, stop_on_signals
from trainwright.jobs.wait.job_events import Metrics
from trainwright.jobs.wait.run_step import follow_to_end, result_of
from trainwright.jobs.wait.waiting import format_log_line, is_shown, waiter_options_of
from trainwright.operators import cancellation
from trainwright.operators.reporting import task_events
from trainwright.operators.reporting.links import show_checkpoint_link, show_job_links, show_job_name
from trainwright.operators.values.allowed_places import check_places, places_given
from trainwright.operators.values.connections import credentials, step_credentials
from trainwright.operators.values.given_run import Asked
from trainwright.operators.values.rendered_values import JobReference
from trainwright.operators.values.task_identity import task_identity
from trainwright.operators.waiting.tracked_task import Trackers, TrainingObserver
from trainwright.operators.waiting.waiting_task import Job, WaitingTask, WaitOptions, report_end
from trainwright.steps.phases import check_prepared_rows
from trainwright.storage.errors import BadUri
from trainwright.storage.uri import StorageUri
from trainwright.submission.jobs_client import JobsClient

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(WaitOptions):
    """As of the base class, of TrainJobOperator."""

    store_conn_id: str | None
    hub_conn_id: str | None
    tracking: list[Any] | str | None
    workspace_path: str
    wait_for_completion: bool
    durable: bool
    deferrable: bool


class TrainingTask(WaitingTask):
    """One entry of Airflow into a task that trains."""

    options: TrainingOptions

    def __init__(self, operator: BaseOperator, context: Context, options: TrainingOptions, asked: Asked):
        super().__init__(operator, context, options, asked.request)
        self.asked, self.mode, self.on_give_up = asked, asked.submission_mode, asked.request.ending.on_cancel
        self.trackers = Trackers(options.tracking, options.workspace_path)
        self.hub = options.hub_conn_id or asked.run.hub_conn_id or None
        """The connection of the hub: the task's, else the run's."""
        on_cancel = self.on_give_up if options.wait_for_completion else "keep"
        self.identity = task_identity(context, asked.run.run_id, on_cancel=on_cancel)
        """The identity of the task, as its TrainJob notes it."""
        self.has_results = asked.request.func is not None or bool(asked.request.code)
        self.folder = self.identity.folder if asked.request.workspace else ""
        self.on_signal: CancelHandler = cancellation.on_signal(context, self.on_give_up, durable=options.durable)

    def run(self) -> Any:
        """The task's result. Raises the errors of its job; TaskDeferred; Cancelled after SIGTERM, so that no job runs unattended."""
        options, request = self.options, self.request
        connections = (options.conn_id, options.store_conn_id, self.hub)
        check_places(connections, **places_given(request.given_values()))
        self.trackers.check(connections)
        check_prepared_rows(request, options.workspace_path)
        cluster = self.connect()
        if not options.durable and int(self.context["ti"].try_number) > 1:
            cancellation.stop_previous_try(cluster, self.identity, self.asked.namespace(cluster), request.ending.on_cancel)
        if options.wait_for_completion and not options.deferrable:  # the worker waits, and handles signals itself
            return self._run_in_worker(cluster)
        limit = self.operator.execution_timeout
        with stop_on_signals() as stop:
            if not options.wait_for_completion:  # a sensor waits for it
                submitted = self._submit_unless_ended(cluster, stop)
                metadata, folder = submitted.trainjob["metadata"], folder_of_job(submitted.trainjob)
                place = metadata["namespace"], metadata["uid"], str(submitted.cluster.mode)
                return JobReference(metadata["name"], *place, folder, self.has_results).as_xcom()
            cluster, trainjob = self._submit_and_defer(cluster, stop, time.time() + limit.total_seconds() if limit else None)
        with self._observing(trainjob, dict(progress_of(trainjob).metrics)), report_end(self.printer):
            result = self._read_end(cluster, trainjob)
        self._forget_credentials(trainjob["metadata"]["namespace"], cluster.mode)
        return result

    def complete(self, event: dict[str, Any]) -> Any:
        """As of the base class; the credentials that pods had from connections are deleted with the end of the job."""
        ended = {"metadata": {name: event.get(name) or "" for name in ("name", "namespace", "uid")}}
        try:
            with self._observing(ended, event.get("metrics")):
                result = super().complete(event)
        except Exception:
            if event["outcome"] in ("failed", "deleted", "succeeded"):  # a job that was only stopped may go on
                self._forget_credentials(event["namespace"], event.get("submission_mode"))
            raise
        self._forget_credentials(event["namespace"], event.get("submission_mode"))
        return result

    def wait_after_failed_trigger(self, cluster: JobsClient, trainjob: Job, error: Exception) -> Any:
        """As of the base class; the trackers get what the worker sees."""
        with self._observing(trainjob):
            result = super().wait_after_failed_trigger(cluster, trainjob, error)
        self._forget_credentials(trainjob["metadata"]["namespace"], cluster.mode)
        return result

    def find_job(self) -> tuple[JobsClient, Job] | None:
        cluster = self.connect()
        return find_job(cluster, self.identity, self.asked.namespace(cluster))

    def wait_in_worker(self, cluster: JobsClient, trainjob: Job) -> Any:
        observers = (self.observer,) if self.observer is not None else ()
        waiting = Waiting.of(self.request, self.printer, observers=observers, on_signal=self.on_signal)

        def resubmit() -> Submitted:
            submitted = self._submit(cluster)
            for observer in observers:
                observer.begin(submitted.trainjob)
            return submitted

        for observer in observers:
            observer.begin(trainjob)
        ended = follow_to_end(cluster, trainjob, waiting, resubmit=resubmit)
        return self.read_result(cluster, ended, self.printer.metrics)

    def read_result(self, cluster: JobsClient, trainjob: Job, metrics: dict[str, str] | None = None) -> Any:
        return self.done(result_of(cluster, trainjob, self.request, metrics))

    def after_failure(self, cluster: JobsClient, failure: Exception, until: float | None) -> Any:
        """After a resubmission, submit the next job and wait for it, within the budget. Otherwise raise the failure."""
        if not isinstance(failure, Preempted) or not (budget := self.request.limits.preemption_budget):
            raise failure
        with stop_on_signals() as stop:
            if not resubmission.wait_to_resume(cluster, failure, budget, stop):
                raise Cancelled("the task was ended while it waited to resume a preempted job; no job is running") from failure
            return self._read_end(*self._submit_and_defer(cluster, stop, until))

    def _run_in_worker(self, cluster: JobsClient) -> Any:
        submission = self._submission(cluster)
        with self._tracked() as observer, report_end(self.printer):

            def on_submitted(submitted: Submitted) -> None:
                self._report_submitted(submitted)
                observer.begin(submitted.trainjob)

            waiting = Waiting.of(
                self.request, self.printer, observers=(observer,), on_signal=self.on_signal, on_submitted=on_submitted
            )
            return self.done(run_step(submission, waiting))

    @contextmanager
    def _observing(self, trainjob: Job, metrics: Mapping[str, str] | None = None) -> Iterator[None]:
        """Read the end of a job in the block: the trackers get what it has logged, and `metrics`, the values that were seen last."""
        with ExitStack() as open_trackers:
            try:
                self.observer = observer = open_trackers.enter_context(self._tracked())
            except ValueError as error:
                # The worker that has submitted the job had another environment. What becomes of the job matters more.
                self.log.warning("the trackers get nothing: %s", error)
                yield
                return
            observer.begin(trainjob)
            if metrics:  # no triggerer feeds trackers
                observer((Metrics(tuple(metrics.items())),))
            yield

    def _tracked(self) -> AbstractContextManager[TrainingObserver]:
        return self.trackers.observer(self.identity, self.request, lambda line: self.log.info("%s", line))

    def _submit_and_defer(self, cluster: JobsClient, stop: StopEvent, until: float | None) -> tuple[JobsClient, Job]:
        """A job that has already succeeded; otherwise raises TaskDeferred, or Cancelled if `stop` is set.

        `until` is the end of the task's execution_timeout, in seconds since the epoch.
        """
        submitted = self._submit_unless_ended(cluster, stop)
        cluster, trainjob = submitted.cluster, submitted.trainjob
        if phase_of(trainjob) is Phase.Succeeded:  # a trigger would only fire at once
            return cluster, trainjob
        self.defer(trainjob, until=until, mode=cluster.mode, lease_seconds=self._lease_seconds)

    def _submit_unless_ended(self, cluster: JobsClient, stop: StopEvent) -> Submitted:
        """Submit or adopt the job. Raises Cancelled if `stop` was set meanwhile, so that no job runs unattended."""
        submitted = self._submit(cluster)
        cluster, trainjob = submitted.cluster, submitted.trainjob
        if stop.is_set() and phase_of(trainjob) is not Phase.Succeeded:
            result = cancel_unwatched_job(cluster, trainjob, self.on_signal)
            raise Cancelled(f"the task was ended before it was deferred; TrainJob {trainjob['metadata']['name']}: {result}")
        return submitted

    def _submit(self, cluster: JobsClient) -> Submitted:
        submitted = submit_or_adopt(self._submission(cluster), waiter_lease_seconds=self._lease_seconds)
        self._report_submitted(submitted)
        return submitted

    def _submission(self, cluster: JobsClient) -> Submission:
        """The submission, with the run's latest export and the credentials of the task's connections."""
        latest = self._latest_export if self.request.export_uri else None
        found = step_credentials(self.options.store_conn_id, self.hub)
        return Submission(cluster, self.request, self.identity, self.asked.namespace(cluster), latest, credentials=found)

    def _latest_export(self, identity: Identity) -> str:
        """The URI of the run's latest export, read with the credentials of the connections; empty if there is none."""
        with credentials(self.options.store_conn_id, self.hub):
            return latest_export_lookup(self.request.export_uri)(identity)

    def _report_submitted(self, submitted: Submitted) -> None:
        """Count the job, and show its name, and links to it and to the exports of its run."""
        task_events.count("adopted" if submitted.adopted else "submitted")
        show_job_name(self.context, submitted.trainjob["metadata"])
        show_job_links(self.operator, self.context, submitted.trainjob["metadata"], self.options.conn_id)
        try:
            exports = str(StorageUri.parse(self.request.export_uri).join(self.identity.exports))
        except BadUri:  # without one, too
            exports = ""
        show_checkpoint_link(self.operator, self.context, exports, self.options.store_conn_id)

    def _read_end(self, cluster: JobsClient, trainjob: Job) -> Any:
        """The result of a job that has succeeded before the task could be deferred; shows the log that no triggerer has shown."""
        if (options := self.request.logging.options) is not None and self.options.log_poll_interval > 0:
            for portion in PolledLogs(cluster, trainjob, options, shown_until(trainjob)).drain():
                for line in filter(is_shown, portion):
                    self.log.info("%s", format_log_line(line))
        self.judge_end(cluster, trainjob)
        return self.read_result(cluster, trainjob)

    def _forget_credentials(self, namespace: str, mode: str | None) -> None:
        if self.options.store_conn_id or self.hub:
            delete_credentials(self.connect(mode or ""), self.identity, namespace)

    @property
    def _lease_seconds(self) -> int:
        """The length of the lease on the job; 0 without one, as where nobody waits."""
        return waiter_options_of(self.request, suspends_at_once=False).lease_seconds if self.options.wait_for_completion else 0
