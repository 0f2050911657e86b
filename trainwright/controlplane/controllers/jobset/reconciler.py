"""One pass over a JobSet: look at its Jobs, let the policies decide in their order, write what differs, status last."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.errors import AlreadyExists, ApiError, NotFound
from trainwright.api.kinds import CLAIM, JOB, JOBSET, POD, SERVICE, Kind
from trainwright.api.objects import (
    Obj,
    copy_of,
    is_controlled_by,
    is_deleting,
    labels_of,
    name_of,
    named,
    namespace_of,
    uid_of,
)
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, key_of_controller, own_key
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.expiry import seconds_to_expiry
from trainwright.controlplane.controllers.jobset import in_place
from trainwright.controlplane.controllers.jobset.children import (
    count_single_restart,
    counters,
    replicated_job_of,
    sorted_children,
)
from trainwright.controlplane.controllers.jobset.construct import child_jobs, headless_service
from trainwright.controlplane.controllers.jobset.depends_on import dependencies_met
from trainwright.controlplane.controllers.jobset.elastic import resized
from trainwright.controlplane.controllers.jobset.failure_policy import verdict
from trainwright.controlplane.controllers.jobset.look import Look
from trainwright.controlplane.controllers.jobset.startup_policy import has_started, is_in_order, mark_completed, mark_in_progress
from trainwright.controlplane.controllers.jobset.success_policy import has_succeeded
from trainwright.controlplane.controllers.jobset.suspension import resumed
from trainwright.controlplane.controllers.jobset.volume_claims import volume_claims
from trainwright.controlplane.controllers.queue import Key
from trainwright.controlplane.gates import FeatureGates

SOURCE = "jobset-controller"


def jobset_controller(cluster: Cluster, gates: FeatureGates | None = None) -> Controller:
    gates = gates or FeatureGates()
    of_jobset = key_of_controller("JobSet")
    watches: dict[Kind, Callable[[Obj], list[Key]]] = {JOBSET: own_key, JOB: of_jobset, SERVICE: of_jobset}
    if gates.InPlaceRestart:
        watches[POD] = _jobset_of_pod
    return Controller("jobset", JobSetReconciler(cluster, gates).reconcile, watches)


def _jobset_of_pod(pod: Obj) -> list[Key]:
    name = labels_of(pod).get(names.JOBSET_NAME_LABEL)
    return [(namespace_of(pod), name)] if name else []


class JobSetReconciler:
    def __init__(self, cluster: Cluster, gates: FeatureGates):
        self._cluster, self._gates = cluster, gates

    def reconcile(self, key: Key) -> float | None:
        namespace, name = key
        try:
            jobset = self._cluster.get(JOBSET, name, namespace)
        except NotFound:
            return None
        if is_deleting(jobset) or jobset["spec"].get("managedBy", names.JOBSET_CONTROLLER) != names.JOBSET_CONTROLLER:
            return None
        before = copy_of(jobset.get("status") or {})
        status: Obj = jobset.setdefault("status", {})
        children = sorted_children(self._jobs(jobset), status, single_restarts=self._gates.RestartJob)
        look = Look(jobset, status, children, datetime.now(UTC))
        again = self._pass(look)
        if status != before:
            status.setdefault("restarts", 0)
            self._cluster.update_status(jobset)
            for severity, reason, message in look.events:
                record_event(self._cluster, jobset, "Warning" if severity == "Warning" else "Normal", reason, message, SOURCE)
        return again

    def _jobs(self, jobset: Obj) -> list[Obj]:
        """The Jobs that belong to this very JobSet; a predecessor of the same name may have left others."""
        selector = f"{names.JOBSET_NAME_LABEL}={name_of(jobset)}"
        jobs = self._cluster.list(JOB, namespace_of(jobset), label_selector=selector).items
        return [job for job in jobs if is_controlled_by(job, jobset)]

    def _pass(self, look: Look) -> float | None:
        seen = counters(look.jobset, look.children)
        if seen:
            look.status["replicatedJobsStatus"] = seen
        if is_finished(look.jobset):
            self._delete(look.children.active)
            return self._expire(look)
        self._delete(look.children.previous)
        _end_restart(look)
        if look.children.failed:
            self._fail_or_restart(look)
            return None
        if has_succeeded(look.jobset, look.children):
            look.complete()
            return None
        self._create_companions(look)
        self._resize(look)
        self._create_jobs(look)
        if look.suspended:
            self._suspend(look)
        else:
            self._resume(look)
        self._restart_in_place(look)
        return None

    def _expire(self, look: Look) -> float | None:
        left = seconds_to_expiry(look.jobset, look.now)
        if left is None or left > 0:
            return left
        name, namespace = name_of(look.jobset), namespace_of(look.jobset)
        self._cluster.delete(JOBSET, name, namespace, propagation="Foreground", uid=uid_of(look.jobset))
        return None

    def _fail_or_restart(self, look: Look) -> None:
        decided = verdict(look.jobset, look.children.failed, single_restarts=self._gates.RestartJob)
        if decided.outcome == "fail":
            look.fail(decided.reason, decided.message)
            return
        if decided.outcome == "restart job":
            replicated = named(look.replicated_jobs, replicated_job_of(decided.job)) or {}
            count_single_restart(look.status, decided.job, replicated.get("replicas", 1), counted=decided.counted)
        else:
            look.status["restarts"] = int(look.status.get("restarts") or 0) + 1
            if decided.counted:
                look.status["restartsCountTowardsMax"] = int(look.status.get("restartsCountTowardsMax") or 0) + 1
            look.set("RestartingJobSet", True, decided.rule, decided.message, "Warning")
        look.tell("Warning", decided.reason, decided.message)

    def _create_companions(self, look: Look) -> None:
        wanted = [(CLAIM, claim, "PVCCreationFailed") for claim in volume_claims(look.jobset)]
        service = headless_service(look.jobset)
        if service is not None:
            wanted.insert(0, (SERVICE, service, "HeadlessServiceCreationFailed"))
        for kind, obj, reason in wanted:
            try:
                self._cluster.get(kind, name_of(obj), namespace_of(obj))
            except NotFound:
                self._create_companion(look, obj, reason)

    def _create_companion(self, look: Look, obj: Obj, reason: str) -> None:
        try:
            self._cluster.create(obj)
        except AlreadyExists:
            return
        except ApiError as error:
            record_event(self._cluster, look.jobset, "Warning", reason, error.message, SOURCE)
            raise

    def _resize(self, look: Look) -> None:
        if not self._gates.ElasticJobSet:
            return
        for replicated in look.replicated_jobs:
            for job in look.children.active_of(replicated["name"]):
                size = resized(replicated, job)
                if size is not None:
                    self._cluster.patch(JOB, name_of(job), {"spec": size}, namespace_of(job))

    def _create_jobs(self, look: Look) -> None:
        strategy = (look.jobset["spec"].get("failurePolicy") or {}).get("restartStrategy")
        if strategy == "BlockingRecreate" and look.children.previous:
            return
        in_order = is_in_order(look.jobset) and not look.suspended
        for replicated in look.replicated_jobs:
            if not dependencies_met(replicated, look.jobset, look.counters):
                continue
            if in_order and has_started(replicated, look.counters):
                continue
            self._create_missing(look, replicated)
            if in_order:
                mark_in_progress(look)
                return
        if in_order:
            mark_completed(look)

    def _create_missing(self, look: Look, replicated: Obj) -> None:
        """Create the Jobs whose name is free. One that cannot be created ends the pass, once the others have been tried."""
        taken = {name_of(job) for job in look.children.all}
        failed: list[tuple[str, ApiError]] = []
        for job in child_jobs(look.jobset, replicated, single_restarts=self._gates.RestartJob, but=taken):
            try:
                self._cluster.create(job)
            except ApiError as error:
                failed.append((name_of(job), error))
        if failed:
            message = "\n".join(f'job "{name}" creation failed with error: {error.message}' for name, error in failed)
            record_event(self._cluster, look.jobset, "Warning", "JobCreationFailed", message, SOURCE)
            raise failed[0][1]

    def _suspend(self, look: Look) -> None:
        for job in look.children.active:
            if not job["spec"].get("suspend"):
                self._cluster.patch(JOB, name_of(job), {"spec": {"suspend": True}}, namespace_of(job))
        look.set("Suspended", True, "SuspendedJobs", "jobset is suspended")
        look.set("RestartingJobSet", False, "JobSetSuspended", "jobset is suspended")

    def _resume(self, look: Look) -> None:
        in_order = is_in_order(look.jobset)
        for replicated in look.replicated_jobs:
            if not dependencies_met(replicated, look.jobset, look.counters):
                continue
            if in_order and has_started(replicated, look.counters):
                continue
            for job in look.children.active_of(replicated["name"]):
                if job["spec"].get("suspend"):
                    self._resume_job(job, replicated)
            if in_order:
                mark_in_progress(look)
                return
        look.set("Suspended", False, "ResumeJobs", "jobset is resumed")

    def _resume_job(self, job: Obj, replicated: Obj) -> None:
        name, namespace = name_of(job), namespace_of(job)
        if (job.get("status") or {}).get("startTime"):  # a started Job's template cannot be changed
            self._cluster.patch(JOB, name, {"status": {"startTime": None}}, namespace, subresource="status")
        self._cluster.patch(JOB, name, {"spec": resumed(job, replicated)}, namespace)

    def _restart_in_place(self, look: Look) -> None:
        if not self._gates.InPlaceRestart or not in_place.is_in_place(look.jobset):
            return
        selector = f"{names.JOBSET_NAME_LABEL}={name_of(look.jobset)}"
        pods = self._cluster.list(POD, namespace_of(look.jobset), label_selector=selector).items
        decided = in_place.attempts(look.jobset, pods)
        if decided.failed:
            look.fail("ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")
        if decided.current is not None:
            look.status["currentInPlaceRestartAttempt"] = decided.current
        if decided.previous is not None:
            look.status["previousInPlaceRestartAttempt"] = decided.previous

    def _delete(self, jobs: list[Obj]) -> None:
        for job in jobs:
            if not is_deleting(job):
                try:
                    self._cluster.delete(JOB, name_of(job), namespace_of(job), propagation="Foreground", uid=uid_of(job))
                except NotFound:
                    continue


def _end_restart(look: Look) -> None:
    """A restart is over once all Jobs are ready, or have succeeded."""
    total = sum(entry.get("replicas", 1) for entry in look.replicated_jobs)
    if not look.suspended and sum(entry["ready"] + entry["succeeded"] for entry in look.counters) == total:
        look.set("RestartingJobSet", False, "JobsReady", "all jobs are ready")
