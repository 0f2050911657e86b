"""Reconciles a JobSet: classifies its Jobs, applies the policies in order, and writes the status last."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.errors import AlreadyExists, ApiError, NotFound
from trainwright.api.kinds import CLAIM, JOB, JOBSET, SERVICE
from trainwright.api.objects import Obj, copy_of, is_controlled_by, is_deleting, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, object_key, owner_key
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.expiry import delete_expired
from trainwright.controlplane.controllers.jobset.children import ReconcileState, classify_children, counters
from trainwright.controlplane.controllers.jobset.construct import child_jobs, headless_service, volume_claims
from trainwright.controlplane.controllers.jobset.depends_on import dependencies_met
from trainwright.controlplane.controllers.jobset.failure_policy import failure_action
from trainwright.controlplane.controllers.jobset.startup_policy import has_started, is_in_order, mark_completed, mark_in_progress
from trainwright.controlplane.controllers.jobset.success_policy import has_succeeded
from trainwright.controlplane.controllers.queue import Key

SOURCE = "jobset-controller"
MAX_JOBS_PER_PASS = 500
"""Jobs of one replicated job that a reconcile creates: `replicas` may be two thousand million, and other objects wait meanwhile."""


def jobset_controller(cluster: Cluster) -> Controller:
    of_jobset = owner_key("JobSet")
    return Controller("jobset", JobSetReconciler(cluster).reconcile, {JOBSET: object_key, JOB: of_jobset, SERVICE: of_jobset})


class JobSetReconciler:
    def __init__(self, cluster: Cluster):
        self._cluster = cluster

    def reconcile(self, key: Key) -> float | None:
        namespace, name = key
        try:
            jobset = self._cluster.get(JOBSET, name, namespace)
        except NotFound:  # deleted: the garbage collector deletes its Jobs
            return None
        if is_deleting(jobset) or jobset["spec"].get("managedBy", names.JOBSET_CONTROLLER) != names.JOBSET_CONTROLLER:
            return None  # being deleted, or the business of another controller
        before = copy_of(jobset.get("status") or {})
        status: Obj = jobset.setdefault("status", {})
        jobs = self._cluster.list(JOB, namespace, label_selector=f"{names.JOBSET_NAME_LABEL}={name}").items
        own = [job for job in jobs if is_controlled_by(job, jobset)]  # not of an earlier JobSet with this name
        children = classify_children(own, status)
        state = ReconcileState(jobset, status, children, datetime.now(UTC))
        requeue_after = self._reconcile_jobset(state)
        if status != before:
            status.setdefault("restarts", 0)
            self._cluster.update_status(jobset)
            for severity, reason, message in state.events:
                record_event(self._cluster, jobset, "Warning" if severity == "Warning" else "Normal", reason, message, SOURCE)
        return requeue_after

    def _reconcile_jobset(self, state: ReconcileState) -> float | None:
        seen = counters(state.jobset, state.children)
        if seen:
            state.status["replicatedJobsStatus"] = seen
        if is_finished(state.jobset):  # what still runs ends with it; the object stays for its time to live
            self._delete(state.children.active)
            return delete_expired(self._cluster, JOBSET, state.jobset, state.now)
        self._delete(state.children.previous)
        total = sum(entry.get("replicas", 1) for entry in state.replicated_jobs)
        if not state.is_suspended and sum(entry["ready"] + entry["succeeded"] for entry in state.counters) == total:
            state.update_condition("RestartingJobSet", False, "JobsReady", "all jobs are ready")
        if state.children.failed:
            self._fail_or_restart(state)
            return None  # the changed status enqueues it again, as a later attempt
        if has_succeeded(state.jobset, state.children):
            state.complete()
            return None
        self._create_companions(state)
        self._create_jobs(state)
        if state.is_suspended:
            self._suspend(state)
        else:
            self._resume(state)
        return None

    def _fail_or_restart(self, state: ReconcileState) -> None:
        decided = failure_action(state.jobset, state.children.failed)
        if decided.outcome == "fail":
            state.fail(decided.reason, decided.message)
            return  # final: the next reconcile ends what still runs
        state.status["restarts"] = int(state.status.get("restarts") or 0) + 1
        if decided.counted:
            state.status["restartsCountTowardsMax"] = int(state.status.get("restartsCountTowardsMax") or 0) + 1
        state.update_condition("RestartingJobSet", True, decided.rule, decided.message, "Warning")
        state.add_event("Warning", decided.reason, decided.message)

    def _create_companions(self, state: ReconcileState) -> None:
        companions = [(CLAIM, claim, "PVCCreationFailed") for claim in volume_claims(state.jobset)]
        service = headless_service(state.jobset)
        if service is not None:
            companions.insert(0, (SERVICE, service, "HeadlessServiceCreationFailed"))
        for kind, obj, reason in companions:
            with suppress(NotFound):  # the first reconcile, or deleted by hand
                self._cluster.get(kind, name_of(obj), namespace_of(obj))
                continue  # it exists
            try:
                self._cluster.create(obj)
            except AlreadyExists:  # created meanwhile; the cache had not seen it
                continue
            except ApiError as error:  # shown on the JobSet, which would wait without a reason
                record_event(self._cluster, state.jobset, "Warning", reason, error.message, SOURCE)
                raise

    def _create_jobs(self, state: ReconcileState) -> None:
        strategy = (state.jobset["spec"].get("failurePolicy") or {}).get("restartStrategy")
        if strategy == "BlockingRecreate" and state.children.previous:
            return  # the next attempt waits until all pods of the last one have ended
        in_order = is_in_order(state.jobset) and not state.is_suspended
        for replicated in state.replicated_jobs:
            if not dependencies_met(replicated, state.jobset, state.counters):
                continue  # its turn comes when the status of those changes
            if in_order and has_started(replicated, state.counters):
                continue  # all its Jobs have started: the next one has its turn
            self._create_missing(state, replicated)
            if in_order:
                mark_in_progress(state)
                return  # the others wait for this one
        if in_order:
            mark_completed(state)

    def _create_missing(self, state: ReconcileState, replicated: Obj) -> None:
        """Create missing Jobs, MAX_JOBS_PER_PASS at most; they enqueue the JobSet again. Raises the first error after all attempts."""
        taken = {name_of(job) for job in state.children.all}
        failed: list[tuple[str, ApiError]] = []
        missing = child_jobs(state.jobset, replicated, exclude=taken)
        for job in islice(missing, MAX_JOBS_PER_PASS):
            try:
                self._cluster.create(job)
            except ApiError as error:  # the others are created all the same; the error is raised after that
                failed.append((name_of(job), error))
        if failed:
            message = "\n".join(f'job "{name}" creation failed with error: {error.message}' for name, error in failed)
            record_event(self._cluster, state.jobset, "Warning", "JobCreationFailed", message, SOURCE)
            raise failed[0][1]

    def _suspend(self, state: ReconcileState) -> None:
        for job in state.children.active:
            if not job["spec"].get("suspend"):
                self._cluster.patch(JOB, name_of(job), {"spec": {"suspend": True}}, namespace_of(job))
        state.update_condition("Suspended", True, "SuspendedJobs", "jobset is suspended")
        state.update_condition("RestartingJobSet", False, "JobSetSuspended", "jobset is suspended")

    def _resume(self, state: ReconcileState) -> None:
        in_order = is_in_order(state.jobset)
        for replicated in state.replicated_jobs:
            if not dependencies_met(replicated, state.jobset, state.counters):
                continue  # it stays suspended until those have started or completed
            if in_order and has_started(replicated, state.counters):
                continue  # already resumed
            for job in state.children.active_of(replicated["name"]):
                if job["spec"].get("suspend"):
                    self._resume_job(job, replicated)
            if in_order:
                mark_in_progress(state)
                return  # the others wait for this one
        state.update_condition("Suspended", False, "ResumeJobs", "jobset is resumed")

    def _resume_job(self, job: Obj, replicated: Obj) -> None:
        name, namespace = name_of(job), namespace_of(job)
        if (job.get("status") or {}).get("startTime"):  # a started Job's template cannot be changed
            self._cluster.patch(JOB, name, {"status": {"startTime": None}}, namespace, subresource="status")
        self._cluster.patch(JOB, name, {"spec": resume_patch(job, replicated)}, namespace)

    def _delete(self, jobs: list[Obj]) -> None:
        for job in jobs:
            if not is_deleting(job):
                try:
                    self._cluster.delete(JOB, name_of(job), namespace_of(job), propagation="Foreground", uid=uid_of(job))
                except NotFound:  # deleted since it was listed
                    continue


def resume_patch(job: Obj, replicated: Obj) -> Obj:
    """Return the merge patch of the Job's spec that resumes it and applies changes of the JobSet's template.

    Labels, annotations, node selector, tolerations and scheduling gates are added and replaced, never removed.
    """
    desired, present = replicated["template"]["spec"]["template"], job["spec"]["template"]
    metadata, spec = desired.get("metadata") or {}, desired.get("spec") or {}
    template: Obj = {}
    for part in ("labels", "annotations"):
        if metadata.get(part):
            template.setdefault("metadata", {})[part] = metadata[part]
    if spec.get("nodeSelector"):
        template.setdefault("spec", {})["nodeSelector"] = spec["nodeSelector"]
    for part in ("tolerations", "schedulingGates"):
        before = (present.get("spec") or {}).get(part) or []
        after = [*before, *(entry for entry in spec.get(part) or [] if entry not in before)]
        if after != before:
            template.setdefault("spec", {})[part] = after
    return {"suspend": False} | ({"template": template} if template else {})
