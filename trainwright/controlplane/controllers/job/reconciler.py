"""One pass over a Job: count what ended, judge, then create or remove pods, and write the status when it differs."""

from __future__ import annotations

from datetime import UTC, datetime

from trainwright.api import names
from trainwright.api.conditions import condition, is_finished, is_true, set_condition
from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import JOB, POD
from trainwright.api.objects import Obj, copy_of, is_controlled_by, is_deleting, name_of, namespace_of, uid_of
from trainwright.api.times import parse_time, rfc3339, seconds_between
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, key_of_controller, own_key
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.job import tracking
from trainwright.controlplane.controllers.job.indexes import parse_indexes
from trainwright.controlplane.controllers.job.pods import (
    finished_at,
    index_of,
    is_active,
    is_ready,
    is_terminal,
    is_terminating,
    new_pod,
    phase_of,
)
from trainwright.controlplane.controllers.job.verdicts import Failure, backoff_seconds, failure_of, seconds_to_deadline
from trainwright.controlplane.controllers.queue import Key

SOURCE = "job-controller"


def job_controller(cluster: Cluster) -> Controller:
    return Controller("job", JobReconciler(cluster).reconcile, {JOB: own_key, POD: key_of_controller("Job")}, workers=2)


class JobReconciler:
    def __init__(self, cluster: Cluster):
        self._cluster = cluster

    def reconcile(self, key: Key) -> float | None:
        namespace, name = key
        try:
            job: Obj | None = self._cluster.get(JOB, name, namespace)
        except NotFound:
            job = None
        pods = self._cluster.list(POD, namespace, label_selector=f"{names.JOB_NAME_LABEL}={name}").items
        if job is None or is_deleting(job):
            tracking.release(self._cluster, pods)  # nobody will count them; they must be able to go
            return None
        if job["spec"].get("managedBy", "kubernetes.io/job-controller") != "kubernetes.io/job-controller":
            return None
        pods = [pod for pod in pods if is_controlled_by(pod, job)]
        before = copy_of(job.get("status") or {})
        if is_finished(job):
            tracking.release(self._cluster, pods)
            return self._expire(job)
        again = self._pass(job, pods)
        self._write(job, before)
        return again

    def _pass(self, job: Obj, pods: list[Obj]) -> float | None:
        now = datetime.now(UTC)
        status: Obj = job.setdefault("status", {})
        if not status.get("startTime") and not job["spec"].get("suspend"):
            status["startTime"] = rfc3339(now)
        noted = copy_of(status)
        if tracking.note_finished(job, status, pods):
            self._write(job, {**noted, "uncountedTerminatedPods": None})
        counted = {uid for uids in (status.get("uncountedTerminatedPods") or {}).values() for uid in uids}
        tracking.release(self._cluster, [pod for pod in pods if uid_of(pod) in counted])
        tracking.count(job, status, pods)
        again = self._act(job, pods, now)
        active = [pod for pod in pods if is_active(pod)]
        status["active"] = len(active)
        status["ready"] = sum(is_ready(pod) for pod in active)
        status["terminating"] = sum(is_terminating(pod) for pod in pods)
        return again

    def _act(self, job: Obj, pods: list[Obj], now: datetime) -> float | None:
        status = job["status"]
        pending = condition(job, "FailureTarget")
        failure = Failure(pending["reason"], pending["message"]) if pending else failure_of(job, status, pods, now)
        if failure is not None:
            self._fail(job, pods, failure, now)
            return None
        if job["spec"].get("suspend"):
            self._suspend(job, pods, now)
            return None
        if is_true(job, "Suspended"):
            set_condition(status, "Suspended", False, "JobResumed", "Job resumed", rfc3339(now))
            status["startTime"] = rfc3339(now)
            self._tell(job, "Normal", "Resumed", "Job resumed")
        if _is_complete(job, pods):
            message = "Reached expected number of succeeded pods"
            set_condition(status, "SuccessCriteriaMet", True, "CompletionsReached", message, rfc3339(now))
            set_condition(status, "Complete", True, "CompletionsReached", message, rfc3339(now))
            status["completionTime"] = rfc3339(now)
            self._tell(job, "Normal", "Completed", "Job completed")
            return None
        waits = [self._scale(job, pods, now), seconds_to_deadline(job, status, now)]
        return min((wait for wait in waits if wait is not None), default=None)

    def _fail(self, job: Obj, pods: list[Obj], failure: Failure, now: datetime) -> None:
        """Two steps: announce the failure and remove the pods; once none is left, the final verdict."""
        status = job["status"]
        set_condition(status, "FailureTarget", True, failure.reason, failure.message, rfc3339(now))
        self._delete([pod for pod in pods if is_active(pod)], job)
        if not any(is_active(pod) or is_terminating(pod) for pod in pods):
            set_condition(status, "Failed", True, failure.reason, failure.message, rfc3339(now))
            self._tell(job, "Warning", failure.reason, failure.message)

    def _suspend(self, job: Obj, pods: list[Obj], now: datetime) -> None:
        self._delete([pod for pod in pods if is_active(pod)], job)
        if set_condition(job["status"], "Suspended", True, "JobSuspended", "Job suspended", rfc3339(now)):
            self._tell(job, "Normal", "Suspended", "Job suspended")
        job["status"].pop("startTime", None)

    def _scale(self, job: Obj, pods: list[Obj], now: datetime) -> float | None:
        """Create missing pods, lowest indexes first, or remove what is too many; returns the back-off that is left."""
        spec, status = job["spec"], job["status"]
        active = [pod for pod in pods if is_active(pod)]
        succeeded = status.get("succeeded") or 0
        completions = spec.get("completions")
        wanted = spec.get("parallelism", 1)
        if completions is not None:
            wanted = max(min(wanted, completions - succeeded), 0)
        elif succeeded:
            wanted = len(active)  # a work queue: no new pods after the first success
        if len(active) > wanted:
            surplus = sorted(active, key=lambda pod: (is_ready(pod), phase_of(pod) == "Running"))
            self._delete(surplus[: len(active) - wanted], job)
            return None
        if spec.get("podReplacementPolicy") == "Failed":
            wanted -= sum(is_terminating(pod) for pod in pods)
        missing = wanted - len(active)
        if missing <= 0:
            return None
        wait = _backoff_left(status, pods, now)
        if wait > 0:
            return wait
        for index in _free_indexes(job, pods, missing):
            created = self._create(job, index)
            pods.append(created)
        return None

    def _create(self, job: Obj, index: int | None) -> Obj:
        try:
            pod = self._cluster.create(new_pod(job, index))
        except ApiError as error:
            self._tell(job, "Warning", "FailedCreate", f"Error creating: {error.message}")
            raise
        self._tell(job, "Normal", "SuccessfulCreate", f"Created pod: {name_of(pod)}")
        return pod

    def _delete(self, pods: list[Obj], job: Obj) -> None:
        for pod in pods:
            try:
                self._cluster.delete(POD, name_of(pod), namespace_of(pod), uid=uid_of(pod))
            except NotFound:
                continue
            pod["metadata"]["deletionTimestamp"] = pod["metadata"].get("deletionTimestamp") or rfc3339(datetime.now(UTC))
            self._tell(job, "Normal", "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")

    def _expire(self, job: Obj) -> float | None:
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None:
            return None
        ended = condition(job, "Complete") or condition(job, "Failed") or {}
        left = float(ttl - seconds_between(ended["lastTransitionTime"], datetime.now(UTC)))
        if left > 0:
            return left
        self._cluster.delete(JOB, name_of(job), namespace_of(job), propagation="Foreground", uid=uid_of(job))
        return None

    def _write(self, job: Obj, before: Obj) -> None:
        """Store the status if it differs; the job takes over the new resource version, so that the next write fits."""
        if {k: v for k, v in before.items() if v} == {k: v for k, v in job["status"].items() if v}:
            return
        stored = self._cluster.update_status(
            {**job, "status": {k: v for k, v in job["status"].items() if v not in (None, {}, [])}}
        )
        job["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]

    def _tell(self, job: Obj, kind: str, reason: str, message: str) -> None:
        record_event(self._cluster, job, "Warning" if kind == "Warning" else "Normal", reason, message, SOURCE)


def _is_complete(job: Obj, pods: list[Obj]) -> bool:
    succeeded, completions = job["status"].get("succeeded") or 0, job["spec"].get("completions")
    if any(is_active(pod) for pod in pods):
        return False
    return succeeded > 0 if completions is None else succeeded >= completions


def _free_indexes(job: Obj, pods: list[Obj], count: int) -> list[int | None]:
    """The lowest indexes that no live pod has and that have not succeeded; None for each pod of a NonIndexed Job."""
    if job["spec"].get("completionMode") != "Indexed":
        return [None] * count
    taken = parse_indexes(job["status"].get("completedIndexes"))
    taken |= {index for pod in pods if is_active(pod) and (index := index_of(pod)) is not None}
    if job["spec"].get("podReplacementPolicy") == "Failed":
        taken |= {index for pod in pods if is_terminating(pod) and (index := index_of(pod)) is not None}
    free: list[int | None] = [index for index in range(job["spec"]["completions"]) if index not in taken]
    return free[:count]


def _backoff_left(status: Obj, pods: list[Obj], now: datetime) -> float:
    """Seconds until a replacement may be created, counted from the end of the last failed pod."""
    failed = [pod for pod in pods if phase_of(pod) == "Failed" and is_terminal(pod)]
    last_success = max((finished_at(pod) for pod in pods if phase_of(pod) == "Succeeded"), default="")
    since_success = [pod for pod in failed if finished_at(pod) > last_success]
    if not since_success:
        return 0.0
    last = max(parse_time(finished_at(pod)) for pod in since_success)
    return backoff_seconds(len(since_success)) - (now - last).total_seconds()
