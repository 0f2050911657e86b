"""Reconciles a Job: evaluates its policies, creates or deletes pods, counts finished pods, and updates the status.

Changes of pods are delayed so that simultaneous ones are processed together, like the upstream controller within 1 s. Otherwise the
first of several failures would cause a new pod, or finish the Job, before the others are seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from trainwright.api import names
from trainwright.api.conditions import is_finished, is_true, set_condition
from trainwright.api.containers import restart_count
from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import JOB, POD
from trainwright.api.objects import (
    Obj,
    controller_of,
    copy_of,
    generation_of,
    is_controlled_by,
    is_deleting,
    name_of,
    namespace_of,
    uid_of,
)
from trainwright.api.times import rfc3339
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, object_key, owner_key
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.expiry import delete_expired
from trainwright.controlplane.controllers.job import per_index, tracking
from trainwright.controlplane.controllers.job.backoff import BackoffRecord
from trainwright.controlplane.controllers.job.finish import (
    COMPLETED,
    TARGET,
    FinishReason,
    find_finish_reason,
    is_complete,
    seconds_to_deadline,
)
from trainwright.controlplane.controllers.job.pods import (
    is_ready,
    is_terminal,
    is_terminating,
    is_tracked,
    new_pod,
    phase_of,
)
from trainwright.controlplane.controllers.job.reconcile_state import ReconcileState
from trainwright.controlplane.controllers.job.scaling import indexes_to_create, pods_to_delete
from trainwright.controlplane.controllers.queue import Key

SOURCE = "job-controller"
_OWN_MANAGER = "kubernetes.io/job-controller"
_OMITTED_IF_ZERO = ("active", "succeeded", "failed", "completedIndexes")
PreparePod = Callable[[Obj], None]
"""Modifies a pod before its creation, or raises ApiError if it must not be created yet."""
BATCH_SECONDS = 0.2
"""Long enough for simultaneous changes on one machine, short enough to delay the end of every Job; upstream: 1 s."""


def job_controller(
    cluster: Cluster, prepare_pod: PreparePod = lambda _pod: None, batch_seconds: float = BATCH_SECONDS
) -> Controller:
    batching = Batching(batch_seconds)
    watches = {JOB: object_key, POD: owner_key("Job")}
    delays = {JOB: batching.job_delay, POD: batching.pod_delay}
    return Controller("job", JobReconciler(cluster, prepare_pod).reconcile, watches, workers=2, delays=delays)


class JobReconciler:
    def __init__(self, cluster: Cluster, prepare_pod: PreparePod):
        self._cluster, self._prepare_pod = cluster, prepare_pod
        self._backoffs: dict[str, BackoffRecord] = {}

    def reconcile(self, key: Key) -> float | None:
        namespace, name = key
        try:
            job = self._cluster.get(JOB, name, namespace)
        except NotFound:  # deleted, perhaps with its pods orphaned: nobody counts them, and their finalizers would keep them
            orphans = self._cluster.list(POD, namespace, label_selector=f"{names.JOB_NAME_LABEL}={name}").items
            tracking.remove_finalizers(self._cluster, orphans)
            return None
        if job["spec"].get("managedBy", _OWN_MANAGER) != _OWN_MANAGER:
            return None  # the business of another controller
        listed = self._pods_of(job)
        pods = [pod for pod in listed if is_controlled_by(pod, job)]
        tracking.remove_finalizers(
            self._cluster, [pod for pod in listed if not controller_of(pod) or _belongs_to_predecessor(pod, job)]
        )
        if is_finished(job):
            self._backoffs.pop(uid_of(job), None)
            tracking.remove_finalizers(self._cluster, pods)
            # One that is being deleted waits for its pods, without requeueing.
            return None if is_deleting(job) else delete_expired(self._cluster, JOB, job, datetime.now(UTC))
        return self._reconcile_job(job, pods)

    def _pods_of(self, job: Obj) -> list[Obj]:
        """Return pods with the Job's name label, and those that match a manual selector."""
        selectors = [f"{names.JOB_NAME_LABEL}={name_of(job)}"]
        if job["spec"].get("manualSelector"):
            match_labels = (job["spec"].get("selector") or {}).get("matchLabels") or {}
            selectors.append(",".join(f"{key}={value}" for key, value in match_labels.items()))
        listed = [self._cluster.list(POD, namespace_of(job), label_selector=text).items for text in selectors]
        return list({uid_of(pod): pod for pods in listed for pod in pods}.values())

    def _reconcile_job(self, job: Obj, pods: list[Obj]) -> float | None:
        before = copy_of(job.get("status") or {})
        state = ReconcileState(job, pods, datetime.now(UTC))
        if not state.status.get("startTime") and not state.is_suspended:
            state.status["startTime"] = rfc3339(state.now)
        record = self._backoff_record(state).updated(state.new_succeeded, state.new_failed)
        ready = sum(is_ready(pod) for pod in state.active)
        counts = _PodCounts(len(state.active), ready, sum(is_terminating(pod) for pod in state.pods))
        finish = find_finish_reason(state)
        if finish is not None:
            counts.remove(self._delete(job, state.active))
        elif not is_deleting(job):
            self._scale_pods(state, record, counts)
        if finish is None and is_complete(state, counts.active):
            finish = COMPLETED
        elif finish is None and not is_deleting(job):
            self._mark_suspension(state)
        state.status |= {"active": counts.active, "ready": counts.ready, "terminating": counts.terminating}
        self._track_pods(state, finish, before)
        self._backoffs[uid_of(job)] = record
        if counts.error is not None:
            raise counts.error
        return counts.requeue_after

    def _backoff_record(self, state: ReconcileState) -> BackoffRecord:
        """Return the backoff record; after a restart of this process, derived from the remaining pods."""
        known = self._backoffs.get(uid_of(state.job))
        if known is not None:
            return known  # this process has seen all failures, also those of deleted pods
        counted = [pod for pod in state.pods if is_terminal(pod) and not is_tracked(pod)]
        succeeded = [pod for pod in counted if phase_of(pod) == "Succeeded"]
        return BackoffRecord().updated(succeeded, [pod for pod in counted if phase_of(pod) == "Failed"])

    def _scale_pods(self, state: ReconcileState, record: BackoffRecord, counts: _PodCounts) -> None:
        """Delete surplus pods or create missing ones, never both in one reconcile."""
        deadline = seconds_to_deadline(state)
        extra = pods_to_delete(state)
        if extra:
            tracking.remove_finalizers(self._cluster, extra)  # deleted by the controller: neither failed nor succeeded
            counts.remove(self._delete(state.job, extra))
            counts.requeue_after = deadline
            return
        indexes, wait = indexes_to_create(state, record)
        for index in indexes:
            try:
                self._create(state, index)
            except ApiError as error:  # finished pods are still counted
                counts.error = error
                break
            counts.active += 1
        counts.requeue_after = min((left for left in (deadline, wait) if left is not None), default=None)

    def _mark_suspension(self, state: ReconcileState) -> None:
        if state.is_suspended:
            if set_condition(state.status, "Suspended", True, "JobSuspended", "Job suspended", rfc3339(state.now)):
                self._record_event(state.job, "Normal", "Suspended", "Job suspended")
            state.status.pop("startTime", None)
        elif is_true(state.job, "Suspended"):
            set_condition(state.status, "Suspended", False, "JobResumed", "Job resumed", rfc3339(state.now))
            state.status["startTime"] = rfc3339(state.now)
            self._record_event(state.job, "Normal", "Resumed", "Job resumed")

    def _track_pods(self, state: ReconcileState, finish: FinishReason | None, before: Obj) -> None:
        """Count finished pods and set the interim condition; set the final condition once all pods are gone and counted."""
        releasing = tracking.pods_to_release(state, finish)
        tracking.record_uncounted(state, releasing, finish)
        if finish is not None:
            set_condition(state.status, TARGET[finish.end], True, finish.reason, finish.message, rfc3339(state.now))
        if releasing or finish is not None:
            before = self._write(state.job, before)
        released = tracking.remove_finalizers(self._cluster, releasing)
        tracking.count_released(state, {uid_of(pod) for pod in state.pods if is_tracked(pod)} - released)
        left = state.status["uncountedTerminatedPods"] or state.status["terminating"]
        if finish is not None and not left:
            set_condition(state.status, finish.end, True, finish.reason, finish.message, rfc3339(state.now))
            if finish.end == "Complete":
                state.status["completionTime"] = rfc3339(state.now)
        self._write(state.job, before)
        if finish is not None and not left:
            self._record_finish(state, finish)

    def _record_finish(self, state: ReconcileState, finish: FinishReason) -> None:
        if finish.end == "Failed":
            self._record_event(state.job, "Warning", finish.reason, finish.message)
            return  # what follows is about success
        completions = state.spec.get("completions")
        if completions is not None and state.succeeded > int(completions):
            message = "Too many succeeded pods running after completion count reached"
            self._record_event(state.job, "Warning", "TooManySucceededPods", message)
        self._record_event(state.job, "Normal", "Completed", "Job completed")

    def _create(self, state: ReconcileState, index: int | None) -> None:
        notes = (
            per_index.replacement_notes(state.spec, state.awaiting_replacement.get(index or 0))
            if state.has_limit_per_index
            else {}
        )
        try:
            pod = new_pod(state.job, index, notes)
            self._prepare_pod(pod)
            pod = self._cluster.create(pod)
        except ApiError as error:  # shown on the Job, which would stay without pods for no visible reason
            self._record_event(state.job, "Warning", "FailedCreate", f"Error creating: {error.message}")
            raise
        self._record_event(state.job, "Normal", "SuccessfulCreate", f"Created pod: {name_of(pod)}")

    def _delete(self, job: Obj, pods: list[Obj]) -> list[Obj]:
        for pod in pods:
            try:
                self._cluster.delete(POD, name_of(pod), namespace_of(pod), uid=uid_of(pod))
            except NotFound:  # deleted since it was listed
                continue
            self._record_event(job, "Normal", "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")
        return pods

    def _write(self, job: Obj, before: Obj) -> Obj:
        """Write the status if it has changed, and return it. Updates the job's resourceVersion for the next write."""
        status = {field: value for field, value in job["status"].items() if value or field not in _OMITTED_IF_ZERO}
        if status != before:
            stored = self._cluster.update_status({**job, "status": status})
            job["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        return copy_of(status)

    def _record_event(self, job: Obj, kind: str, reason: str, message: str) -> None:
        record_event(self._cluster, job, "Warning" if kind == "Warning" else "Normal", reason, message, SOURCE)


def _belongs_to_predecessor(pod: Obj, job: Obj) -> bool:
    """Whether the pod belongs to an earlier Job with this name, which will not count it any more."""
    owner = controller_of(pod) or {}
    return (owner.get("kind"), owner.get("name")) == ("Job", name_of(job)) and owner.get("uid") != uid_of(job)


@dataclass
class _PodCounts:
    """Counts of the Job's pods, updated with those created and deleted in this reconcile."""

    active: int
    ready: int
    terminating: int
    requeue_after: float | None = None
    error: ApiError | None = None

    def remove(self, pods: list[Obj]) -> None:
        self.active -= len(pods)
        self.ready -= sum(is_ready(pod) for pod in pods)
        self.terminating += len(pods)


class Batching:
    """Delays of changes to pods and Jobs. Pods becoming ready and changed Job specs are not delayed."""

    def __init__(self, seconds: float = BATCH_SECONDS):
        self._seconds = seconds
        self._generations: dict[str, int] = {}

    def pod_delay(self, event: str, pod: Obj) -> float:
        is_significant = event == "DELETED" or is_deleting(pod) or is_terminal(pod) or restart_count(pod) > 0
        return self._seconds if is_significant else 0.0

    def job_delay(self, event: str, job: Obj) -> float:
        if event == "DELETED":
            self._generations.pop(uid_of(job), None)
            return 0.0  # deleted: nothing is left to batch
        generation = generation_of(job)
        known = self._generations.get(uid_of(job))
        self._generations[uid_of(job)] = generation
        return self._seconds if known == generation else 0.0
