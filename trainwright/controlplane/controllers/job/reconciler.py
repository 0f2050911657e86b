"""One pass over a Job: look, judge, create or remove pods, count what ended, and write the status when it differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from trainwright.api import names
from trainwright.api.conditions import is_finished, is_true, set_condition
from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import JOB, POD
from trainwright.api.objects import Obj, controller_of, copy_of, is_controlled_by, is_deleting, name_of, namespace_of, uid_of
from trainwright.api.times import rfc3339
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, key_of_controller, own_key
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.expiry import seconds_to_expiry
from trainwright.controlplane.controllers.job import per_index, tracking
from trainwright.controlplane.controllers.job.backoff import BackoffRecord
from trainwright.controlplane.controllers.job.batching import BATCH_SECONDS, Batching
from trainwright.controlplane.controllers.job.look import Look
from trainwright.controlplane.controllers.job.new_pod import new_pod
from trainwright.controlplane.controllers.job.pods import is_ready, is_terminal, is_terminating, is_tracked, phase_of
from trainwright.controlplane.controllers.job.scaling import missing, surplus
from trainwright.controlplane.controllers.job.verdicts import (
    COMPLETED,
    TARGET,
    Verdict,
    is_complete,
    seconds_to_deadline,
    verdict,
)
from trainwright.controlplane.controllers.queue import Key

SOURCE = "job-controller"
_OWN_MANAGER = "kubernetes.io/job-controller"
_ZERO_IS_ABSENT = ("active", "succeeded", "failed", "completedIndexes")


PreparePod = Callable[[Obj], None]
"""Completes, in place, a pod that is about to be created, or raises ApiError where it must not be yet."""


def job_controller(
    cluster: Cluster, prepare_pod: PreparePod = lambda _pod: None, batch_seconds: float = BATCH_SECONDS
) -> Controller:
    batching = Batching(batch_seconds)
    watches = {JOB: own_key, POD: key_of_controller("Job")}
    delays = {JOB: batching.of_job, POD: batching.of_pod}
    return Controller("job", JobReconciler(cluster, prepare_pod).reconcile, watches, workers=2, delays=delays)


@dataclass
class _Running:
    """What is left of the Job's live pods after this pass has created and removed some."""

    active: int
    ready: int
    terminating: int
    again: float | None = None
    error: ApiError | None = None

    def remove(self, pods: list[Obj]) -> None:
        self.active -= len(pods)
        self.ready -= sum(is_ready(pod) for pod in pods)
        self.terminating += len(pods)


class JobReconciler:
    def __init__(self, cluster: Cluster, prepare_pod: PreparePod):
        self._cluster, self._prepare_pod = cluster, prepare_pod
        self._backoffs: dict[str, BackoffRecord] = {}

    def reconcile(self, key: Key) -> float | None:
        namespace, name = key
        try:
            job = self._cluster.get(JOB, name, namespace)
        except NotFound:
            self._release_orphans(key)
            return None
        if job["spec"].get("managedBy", _OWN_MANAGER) != _OWN_MANAGER:
            return None
        listed = self._pods_of(job)
        pods = [pod for pod in listed if is_controlled_by(pod, job)]
        tracking.release(self._cluster, [pod for pod in listed if not controller_of(pod) or _is_predecessors(pod, job)])
        if is_finished(job):
            self._backoffs.pop(uid_of(job), None)
            tracking.release(self._cluster, pods)
            return self._expire(job)
        return self._pass(job, pods)

    def _pods_of(self, job: Obj) -> list[Obj]:
        """Pods that carry the Job's name, or what a Job with a selector of its own looks for."""
        selectors = [f"{names.JOB_NAME_LABEL}={name_of(job)}"]
        if job["spec"].get("manualSelector"):
            wanted = (job["spec"].get("selector") or {}).get("matchLabels") or {}
            selectors.append(",".join(f"{key}={value}" for key, value in wanted.items()))
        listed = [self._cluster.list(POD, namespace_of(job), label_selector=text).items for text in selectors]
        return list({uid_of(pod): pod for pods in listed for pod in pods}.values())

    def _pass(self, job: Obj, pods: list[Obj]) -> float | None:
        before = copy_of(job.get("status") or {})
        look = Look(job, pods, datetime.now(UTC))
        if not look.status.get("startTime") and not look.suspended:
            look.status["startTime"] = rfc3339(look.now)
        record = self._record(look).after(look.new_succeeded, look.new_failed)
        ready = sum(is_ready(pod) for pod in look.active)
        running = _Running(len(look.active), ready, sum(is_terminating(pod) for pod in look.pods))
        ending = verdict(look)
        if ending is not None:
            running.remove(self._delete(job, look.active))
        elif not is_deleting(job):
            self._manage(look, record, running)
        if ending is None and is_complete(look, running.active):
            ending = COMPLETED
        elif ending is None and not is_deleting(job):
            self._mark_suspension(look)
        look.status |= {"active": running.active, "ready": running.ready, "terminating": running.terminating}
        self._count(look, ending, before)
        self._backoffs[uid_of(job)] = record
        if running.error is not None:
            raise running.error
        return running.again

    def _record(self, look: Look) -> BackoffRecord:
        """The back-off so far; after a restart of this process, what the pods that are left tell of it."""
        known = self._backoffs.get(uid_of(look.job))
        if known is not None:
            return known
        counted = [pod for pod in look.pods if is_terminal(pod) and not is_tracked(pod)]
        succeeded = [pod for pod in counted if phase_of(pod) == "Succeeded"]
        return BackoffRecord().after(succeeded, [pod for pod in counted if phase_of(pod) == "Failed"])

    def _manage(self, look: Look, record: BackoffRecord, running: _Running) -> None:
        """Remove what is too many or create what is missing, never both in one pass."""
        deadline = seconds_to_deadline(look)
        extra = surplus(look)
        if extra:
            tracking.release(self._cluster, extra)  # removed by us: neither failed nor succeeded
            running.remove(self._delete(look.job, extra))
            running.again = deadline
            return
        indexes, wait = missing(look, record)
        for index in indexes:
            try:
                self._create(look, index)
            except ApiError as error:  # what has ended is counted all the same
                running.error = error
                break
            running.active += 1
        running.again = min((left for left in (deadline, wait) if left is not None), default=None)

    def _mark_suspension(self, look: Look) -> None:
        if look.suspended:
            if set_condition(look.status, "Suspended", True, "JobSuspended", "Job suspended", rfc3339(look.now)):
                self._tell(look.job, "Normal", "Suspended", "Job suspended")
            look.status.pop("startTime", None)
        elif is_true(look.job, "Suspended"):
            set_condition(look.status, "Suspended", False, "JobResumed", "Job resumed", rfc3339(look.now))
            look.status["startTime"] = rfc3339(look.now)
            self._tell(look.job, "Normal", "Resumed", "Job resumed")

    def _count(self, look: Look, ending: Verdict | None, before: Obj) -> None:
        """Count what ended and announce how the Job ends; state the end once no pod is left and all are counted."""
        releasing = tracking.to_release(look, ending)
        tracking.note(look, releasing, ending)
        if ending is not None:
            set_condition(look.status, TARGET[ending.end], True, ending.reason, ending.message, rfc3339(look.now))
        if releasing or ending is not None:
            before = self._write(look.job, before)
        released = tracking.release(self._cluster, releasing)
        tracking.count(look, {uid_of(pod) for pod in look.pods if is_tracked(pod)} - released)
        left = look.status["uncountedTerminatedPods"] or look.status["terminating"]
        if ending is not None and not left:
            set_condition(look.status, ending.end, True, ending.reason, ending.message, rfc3339(look.now))
            if ending.end == "Complete":
                look.status["completionTime"] = rfc3339(look.now)
        self._write(look.job, before)
        if ending is not None and not left:
            self._tell_end(look, ending)

    def _tell_end(self, look: Look, ending: Verdict) -> None:
        if ending.end == "Failed":
            self._tell(look.job, "Warning", ending.reason, ending.message)
            return
        completions = look.spec.get("completions")
        if completions is not None and look.succeeded > int(completions):
            message = "Too many succeeded pods running after completion count reached"
            self._tell(look.job, "Warning", "TooManySucceededPods", message)
        self._tell(look.job, "Normal", "Completed", "Job completed")

    def _create(self, look: Look, index: int | None) -> None:
        notes = per_index.replacement_notes(look.spec, look.awaiting_replacement.get(index or 0)) if look.per_index else {}
        try:
            pod = new_pod(look.job, index, notes)
            self._prepare_pod(pod)
            pod = self._cluster.create(pod)
        except ApiError as error:
            self._tell(look.job, "Warning", "FailedCreate", f"Error creating: {error.message}")
            raise
        self._tell(look.job, "Normal", "SuccessfulCreate", f"Created pod: {name_of(pod)}")

    def _delete(self, job: Obj, pods: list[Obj]) -> list[Obj]:
        for pod in pods:
            try:
                self._cluster.delete(POD, name_of(pod), namespace_of(pod), uid=uid_of(pod))
            except NotFound:
                continue
            self._tell(job, "Normal", "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")
        return pods

    def _release_orphans(self, key: Key) -> None:
        """Let the pods of a Job that is gone go, too: nobody will count them."""
        namespace, name = key
        for pod in self._cluster.list(POD, namespace, label_selector=f"{names.JOB_NAME_LABEL}={name}").items:
            tracking.release(self._cluster, [pod])

    def _expire(self, job: Obj) -> float | None:
        left = seconds_to_expiry(job, datetime.now(UTC))
        if is_deleting(job):  # its pods go first; that it is over may not wake us again and again
            return None
        if left is None or left > 0:
            return left
        self._cluster.delete(JOB, name_of(job), namespace_of(job), propagation="Foreground", uid=uid_of(job))
        return None

    def _write(self, job: Obj, before: Obj) -> Obj:
        """Store the status if it differs, and return what is stored; the job takes over the version, so that the next write fits."""
        wanted = {field: value for field, value in job["status"].items() if value or field not in _ZERO_IS_ABSENT}
        if wanted != before:
            stored = self._cluster.update_status({**job, "status": wanted})
            job["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        return copy_of(wanted)

    def _tell(self, job: Obj, kind: str, reason: str, message: str) -> None:
        record_event(self._cluster, job, "Warning" if kind == "Warning" else "Normal", reason, message, SOURCE)


def _is_predecessors(pod: Obj, job: Obj) -> bool:
    """Whether the pod was made by an earlier Job of this name, which will not count it any more."""
    owner = controller_of(pod) or {}
    return (owner.get("kind"), owner.get("name")) == ("Job", name_of(job)) and owner.get("uid") != uid_of(job)
