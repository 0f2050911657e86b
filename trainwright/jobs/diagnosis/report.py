"""Failure report of a TrainJob: conditions, failed pods with exit codes and causes, their last log lines, events, restarts, usage.

A log can be read only while its pod exists, and only for the last two runs of a container: pods are observed while the job runs,
and the last lines read of what has failed or is about to be deleted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from trainwright.api.conditions import condition
from trainwright.api.containers import container_statuses
from trainwright.api.errors import ApiError, BadRequest, NotFound
from trainwright.api.generated_names import without_suffixes
from trainwright.api.kinds import JOBSET
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.phase import verdict_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.diagnosis.causes import (
    Deletions,
    deletions_in,
    disrupted_pods,
    ended_owners,
    failures_of,
    ordered,
    split_by_attempt,
    with_failed_probes,
    with_told_disruptions,
)
from trainwright.jobs.diagnosis.errors import report_of_verdict
from trainwright.jobs.diagnosis.failure_report import MAX_PODS, FailureReport
from trainwright.jobs.diagnosis.pod_failure import PodFailure
from trainwright.jobs.diagnosis.reason_finder import ReasonFinder, claims_of
from trainwright.jobs.diagnosis.waiting_reason import NOTHING_SEEN, WaitingReason
from trainwright.jobs.logs.log_excerpt import LOG_LINES, last_printed, log_tail, patterns_in
from trainwright.jobs.state.attempts import preemptions_before
from trainwright.jobs.state.kubernetes_events import events_of, is_passing, reason_and_message, steps_of
from trainwright.jobs.state.pod_history import PodHistory, RunKey, SeenPod
from trainwright.jobs.state.pods import (
    DEADLINE_EXCEEDED,
    container_of_step,
    failing_jobs,
    jobs_of,
    pods_of,
    restarts_of,
    step_of,
)
from trainwright.jobs.state.started_pods import StartedPods
from trainwright.jobs.state.usage import Usage, usage_of
from trainwright.jobs.state.watched_pods import PodsOfJob

log = logging.getLogger(__name__)
_RETRY_SECONDS = 15
"""Reads for the report are retried, since the cause decides whether the job is retried."""
_MAX_EVENTS = 5
_GRACE_SECONDS, _POLL_SECONDS = 3.0, 0.5
"""For events of deletions, which may come after the pod is gone."""
_RECENT_SECONDS = 120
"""Of an older deletion no event is to come."""
MAX_READS = 24
"""Logs that are read for one job in all: a job of a thousand pods fails in a thousand pods at once."""
MAX_READS_AT_ONCE = 4


def report_of(
    cluster: Cluster, trainjob: Obj, now: datetime | None = None, *, history: PodHistory | None = None
) -> FailureReport:
    """Create the report of a failed job. Does not raise: parts that cannot be read (deleted, forbidden) are listed in it.

    For a job that its client has given up, the report is that of this client. `history` has the pods as they were seen while the job
    ran: without it, pods that no longer exist are known only by events.
    """
    if (verdict := verdict_of(trainjob)) is not None:
        return report_of_verdict(trainjob, verdict)
    return _Report(cluster, trainjob, history or PodHistory()).read(now or datetime.fromtimestamp(time.time(), UTC))


class _Report:
    """Reads the parts of a report, one after another; `unread` are those that could not be read."""

    def __init__(self, cluster: Cluster, trainjob: Obj, history: PodHistory):
        self._cluster = RetryingCluster(cluster, seconds=_RETRY_SECONDS)
        self._streaming, self._trainjob, self._history = cluster, trainjob, history
        self._unread: list[str] = []
        self._steps, self._claims = steps_of(trainjob), set[str]()

    def read(self, now: datetime) -> FailureReport:
        failed = condition(self._trainjob, "Failed") or {}
        report = FailureReport(
            namespace=namespace_of(self._trainjob),
            name=name_of(self._trainjob),
            uid=uid_of(self._trainjob),
            reason=str(failed.get("reason") or ("unknown" if failed else "")),
            message=str(failed.get("message", "")),
            preemptions=preemptions_before(self._trainjob),
        )
        jobs = self._jobs()
        report = replace(self._with_jobset(report), jobs=tuple(failing_jobs(jobs or [])))
        listed = self._pods()
        if listed is None and not self._history.pods():  # without pods, nothing else says why it failed
            return replace(report, unread=tuple(self._unread))
        pods = listed or []
        events = self._events(pods)
        report = self._with_failures(report, pods, jobs, events)
        if not report.pods and listed is not None:
            report = replace(report, waiting=self._waiting(pods))
        warnings = [reason_and_message(event) for event in events or [] if self._is_warning(event)]
        distinct = {without_suffixes(text): text for text in warnings}
        return replace(
            report,
            usage=usage_of(self._history, self._trainjob, now.timestamp()),
            events=tuple(distinct.values())[-_MAX_EVENTS:],
            unread=tuple(self._unread),
        )

    def _with_jobset(self, report: FailureReport) -> FailureReport:
        try:
            jobset = self._cluster.get(JOBSET, report.name, report.namespace)
        except NotFound:  # it was never created, or is deleted with its job
            return report
        except ApiError as error:  # a report says what it lacks: the job's failure counts, not that of the report
            self._unread.append(f"the JobSet cannot be read: {error.message}")
            return report
        for entry in jobset["spec"].get("replicatedJobs") or []:
            self._steps.add(str(entry["name"]))
            self._claims |= claims_of(((entry.get("template") or {}).get("spec") or {}).get("template") or {})
        failed = condition(jobset, "Failed") or {}
        differs = failed and (failed.get("reason"), failed.get("message")) != (report.reason, report.message)
        text = f"{failed.get('reason')}: {failed.get('message')}" if differs else ""
        return replace(report, jobset=text, restarts=restarts_of(jobset))

    def _is_warning(self, event: Obj) -> bool:
        """Whether an event is a warning that still holds. Trainer fails to change the JobSet of a job that is being suspended."""
        is_past = is_passing(event) or (bool(self._steps) and event.get("reason") == "TrainJobResourcesCreationFailed")
        return event.get("type") == "Warning" and not is_past

    def _jobs(self) -> list[Obj] | None:
        try:
            return jobs_of(self._cluster, self._trainjob)
        except ApiError as error:  # a part that is missing is named; the others still help
            self._unread.append(f"the Jobs cannot be listed: {error.message}")
            return None

    def _pods(self) -> list[Obj] | None:
        try:
            pods = pods_of(self._cluster, self._trainjob)
        except ApiError as error:
            self._unread.append(f"the pods cannot be listed: {error.message}")
            return None
        self._history.observe(pods)
        return pods

    def _events(self, pods: list[Obj]) -> list[Obj] | None:
        try:
            return events_of(self._cluster, self._trainjob, {step_of(pod) for pod in pods} | self._steps, self._claims)
        except ApiError as error:
            self._unread.append(f"the events cannot be listed: {error.message}")
            return None

    def _with_failures(
        self, report: FailureReport, pods: list[Obj], jobs: list[Obj] | None, events: list[Obj] | None
    ) -> FailureReport:
        """Find the pods that failed, also those that are gone, and read the last lines of the first ones."""
        seen = self._history.pods()
        current, replaced = split_by_attempt(seen)
        since = report.jobs[0].since if report.jobs else self._deadline_since()
        owners = ended_owners(seen, jobs)
        deletions, events = self._deletions(failures_of(current, Deletions()), pods, events, since, owners)
        told = [*(events or []), *(job.as_event() for job in report.jobs)]
        gone = disrupted_pods(self._trainjob, told, [pod.pod for pod in seen])
        found = with_failed_probes(with_told_disruptions(failures_of(current, deletions), told), told)
        failures = ordered([*found, *gone], deletions)
        before = with_failed_probes(with_told_disruptions(failures_of(replaced, deletions), told), told)
        earlier = ordered(
            before, replace(deletions, failing_since="", ended_owners=owners if _has_cause(before) else frozenset())
        )
        if not failures:
            failures, earlier = earlier, []
        by_name = {name_of(pod): pod for pod in pods}
        observed = {pod.name: pod for pod in seen}
        read = [self._with_log(failure, by_name.get(failure.name), observed.get(failure.name)) for failure in failures[:MAX_PODS]]
        own = tuple(failure for failure in earlier if not failure.is_consequence)
        return replace(report, pods=(*read, *failures[MAX_PODS:]), earlier=own)

    def _deadline_since(self) -> str:
        """Return when Trainer has ended the job at its deadline, and has deleted its JobSet; else empty."""
        failed = condition(self._trainjob, "Failed") or {}
        return str(failed.get("lastTransitionTime") or "") if failed.get("reason") == DEADLINE_EXCEEDED else ""

    def _deletions(
        self, failures: list[PodFailure], pods: list[Obj], events: list[Obj] | None, since: str, owners: frozenset[str]
    ) -> tuple[Deletions, list[Obj] | None]:
        """Return what is known of deletions, and the events; waits a moment for events that would decide."""
        deletions = deletions_in(events, since, owners)
        until = time.monotonic() + _GRACE_SECONDS
        open_questions = [failure for failure in failures if not failure.is_own_failure and _is_recent(failure)] if since else []
        while events is not None and time.monotonic() < until and any(map(deletions.is_unclear, open_questions)):
            time.sleep(_POLL_SECONDS)
            events = self._events(pods)
            deletions = deletions_in(events, since, owners)
        return deletions, events

    def _with_log(self, failure: PodFailure, pod: Obj | None, seen: SeenPod | None) -> PodFailure:
        others = tuple(self._with_log(other, pod, seen) for other in failure.other_containers[:MAX_PODS])
        failure = replace(failure, other_containers=others)
        lines, problem = self._live_lines(failure, pod)
        if not lines and seen is not None:
            lines = _observed_lines(failure, seen)
        if not lines and not (failure.container or failure.is_gone):  # evicted before a container started
            return failure
        told = problem or ("(the log was deleted with its pod)" if pod is None else "(the log is empty)")
        failure = failure.with_launcher_message(lines)
        return failure.with_log(log_tail(lines, LOG_LINES) or [told], patterns_in(lines))

    def _live_lines(self, failure: PodFailure, pod: Obj | None) -> tuple[list[str], str]:
        """Return the last lines of the failed run, and why they cannot be read. If it printed nothing, those of the other run."""
        if pod is None or not failure.container:  # its log went with it
            return [], ""
        problem = ""
        for previous in (failure.is_previous_run, not failure.is_previous_run):
            if previous and not failure.restarts:  # there was no run before
                continue
            try:
                read = partial(
                    last_printed, self._streaming, pod, failure.container, previous=previous, finished=failure.finished
                )
                if lines := self._cluster.with_retries(read):
                    return lines, ""
            except BadRequest:  # not kept, or not started
                continue
            except ApiError as error:
                problem = problem or f"(the log cannot be read: {error.message})"
        return [], problem

    def _waiting(self, pods: list[Obj]) -> WaitingReason | None:
        try:
            found = ReasonFinder(self._cluster, self._trainjob).reason(self._trainjob, pods)
            return found or WaitingReason(NOTHING_SEEN, "")
        except ApiError as error:
            self._unread.append(f"what the job was waiting for cannot be read: {error.message}")
            return None


def _has_cause(failures: list[PodFailure]) -> bool:
    return any(failure.disruption or failure.failed_probe or failure.is_own_failure for failure in failures)


def _is_recent(failure: PodFailure) -> bool:
    """Whether its deletion was requested so lately that an event about it may still come."""
    if not failure.deletion_requested:  # no event about a deletion is to come
        return False
    return time.time() - datetime.fromisoformat(failure.deletion_requested).timestamp() < _RECENT_SECONDS


def _observed_lines(failure: PodFailure, seen: SeenPod) -> list[str]:
    if failure.container and (lines := seen.lines_of(failure.container, failure.finished)):
        return list(lines)
    if failure.container and failure.container != container_of_step(seen.pod):
        return []
    return list(seen.shown) or next((list(lines) for lines in seen.lines.values() if lines and not failure.container), [])


def last_seen(cluster: Cluster, trainjob: Obj) -> tuple[str, WaitingReason | None]:
    """Return why a job makes no progress, as text and as data (None if nothing says so)."""
    try:
        pods = pods_of(cluster, trainjob)
        reason = ReasonFinder(cluster, trainjob).reason(trainjob, pods, StartedPods(cluster, trainjob).read(pods))
    except ApiError as error:
        return f"last seen: nothing ({error.message})", None
    return f"last seen: {reason.text if reason else NOTHING_SEEN}", reason


def usage_summary(cluster: Cluster, trainjob: Obj) -> str:
    """Return node-hours, GPU-hours and cost as text; empty if the pods cannot be read."""
    return f"used: {text}" if (text := str(read_usage(cluster, trainjob))) else ""


def read_usage(cluster: Cluster, trainjob: Obj, history: PodHistory | None = None) -> Usage:
    """Return what a job has used by now, with what was observed of its pods in `history`, which is brought up to date if possible."""
    history = history or PodHistory()
    try:
        history.observe(pods_of(cluster, trainjob))
    except ApiError as error:  # what was observed before still counts
        log.debug("event=usage_not_read name=%s error=%s", name_of(trainjob), error.message)
    return usage_of(history, trainjob, time.time())


class PodObserver:
    """Lists the pods of one job on request, and keeps their `history`. Not thread-safe."""

    def __init__(self, cluster: Cluster, trainjob: Obj):
        self._cluster, self._trainjob = cluster, trainjob
        self.history = PodHistory()
        self._reads_left = MAX_READS

    def observe(self) -> list[Obj]:
        """List the pods, record them, and read the last lines of new failures. Returns the pods. Raises ApiError."""
        pods = pods_of(self._cluster, self._trainjob)
        gone = self._cluster.take_gone() if isinstance(self._cluster, PodsOfJob) else ()
        self.history.observe([*gone, *pods])
        reads = 0
        for pod in pods:
            for key, previous in self._unread_runs(pod):
                # the others are read at the next look: a wait must not hang here
                if reads == MAX_READS_AT_ONCE or not self._reads_left:
                    return pods
                reads += 1
                self._reads_left -= 1
                seen = self.history.of(pod)
                assert seen is not None
                seen.lines[key] = tuple(self._last_printed(pod, key, previous) or self._last_printed(pod, key, not previous))
        return pods

    def _unread_runs(self, pod: Obj) -> Iterator[tuple[RunKey, bool]]:
        """Yield the runs whose lines are worth reading, and whether each is the container's previous one."""
        seen = self.history.of(pod)
        if seen is None:
            return
        for entry in container_statuses(pod):
            states = (entry.get("state") or {}, entry.get("lastState") or {})
            for previous, state in enumerate(states):
                ended = state.get("terminated")
                if ended and ended.get("exitCode"):
                    key = RunKey(str(entry["name"]), str(ended.get("finishedAt") or ""))
                    if key not in seen.lines:
                        yield key, bool(previous)
            last_chance = RunKey(str(entry["name"]), "")
            if "running" in states[0] and (seen.deletion_requested or seen.is_disrupted) and last_chance not in seen.lines:
                yield last_chance, False

    def _last_printed(self, pod: Obj, key: RunKey, previous: bool) -> list[str]:
        """Return the last lines of that run. The container may have been restarted since the pod was listed."""
        if previous and not key.finished:  # the run goes on: no earlier one is meant
            return []
        try:
            return last_printed(self._cluster, pod, key.container, previous=previous, finished=key.finished)
        except ApiError as error:  # the report tries again, and says so
            log.debug("event=last_lines_not_read pod=%s container=%s error=%s", name_of(pod), key.container, error.message)
            return []
