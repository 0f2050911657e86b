"""One pass over a JobSet: look at its Jobs, let the policies decide in their order, write what differs, status last."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from trainwright.api import names
from trainwright.api.conditions import condition, is_finished, set_condition
from trainwright.api.errors import AlreadyExists, ApiError, NotFound
from trainwright.api.kinds import CLAIM, JOB, JOBSET, SERVICE
from trainwright.api.objects import Obj, copy_of, is_deleting, name_of, namespace_of, uid_of
from trainwright.api.times import rfc3339, seconds_between
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, key_of_controller, own_key
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.jobset.children import Children, counters, sorted_children
from trainwright.controlplane.controllers.jobset.construct import child_jobs, headless_service, volume_claims
from trainwright.controlplane.controllers.jobset.depends_on import dependencies_met
from trainwright.controlplane.controllers.jobset.failure_policy import verdict
from trainwright.controlplane.controllers.jobset.success_policy import has_succeeded
from trainwright.controlplane.controllers.queue import Key

SOURCE = "jobset-controller"


def jobset_controller(cluster: Cluster) -> Controller:
    watches = {JOBSET: own_key, JOB: key_of_controller("JobSet"), SERVICE: key_of_controller("JobSet")}
    return Controller("jobset", JobSetReconciler(cluster).reconcile, watches)


@dataclass
class _Pass:
    """One look at one JobSet: the status being made, and the events to tell once it is stored."""

    jobset: Obj
    status: Obj
    children: Children
    now: datetime
    events: list[tuple[str, str, str]] = field(default_factory=list)

    def set(self, kind: str, value: bool, reason: str, message: str, severity: str = "Normal") -> None:
        """Set a condition; False is only for one that exists. Each effective change becomes an event."""
        if not value and condition({"status": self.status}, kind) is None:
            return
        if set_condition(self.status, kind, value, reason, message, rfc3339(self.now)):
            self.events.append((severity, reason, message))


class JobSetReconciler:
    def __init__(self, cluster: Cluster):
        self._cluster = cluster

    def reconcile(self, key: Key) -> float | None:
        namespace, name = key
        try:
            jobset = self._cluster.get(JOBSET, name, namespace)
        except NotFound:
            return None
        if is_deleting(jobset) or jobset["spec"].get("managedBy", names.JOBSET_CONTROLLER) != names.JOBSET_CONTROLLER:
            return None
        jobs = self._cluster.list(JOB, namespace, label_selector=f"{names.JOBSET_UID_LABEL}={uid_of(jobset)}").items
        before = copy_of(jobset.get("status") or {})
        status = copy_of(before)
        look = _Pass(jobset, status, sorted_children(jobs, status.get("restarts") or 0), datetime.now(UTC))
        again = self._pass(look)
        if status != before:
            jobset["status"] = status
            self._cluster.update_status(jobset)
            for severity, reason, message in look.events:
                record_event(self._cluster, jobset, "Warning" if severity == "Warning" else "Normal", reason, message, SOURCE)
        return again

    def _pass(self, look: _Pass) -> float | None:
        jobset, children = look.jobset, look.children
        seen = counters(jobset, children)
        look.status["replicatedJobsStatus"] = seen
        look.status.setdefault("restarts", 0)
        if is_finished({"status": look.status}):
            self._delete(children.active)
            return self._expire(look)
        self._delete(children.previous)
        suspended = bool(jobset["spec"].get("suspend"))
        total = sum(job.get("replicas", 1) for job in jobset["spec"].get("replicatedJobs") or [])
        if not suspended and sum(entry["ready"] + entry["succeeded"] for entry in seen) == total:
            look.set("RestartingJobSet", False, "JobsReady", "all jobs are ready")
        if children.failed:
            self._fail_or_restart(look)
            return None
        if has_succeeded(jobset, children):
            look.set("Completed", True, "AllJobsCompleted", "jobset completed successfully")
            look.set("RestartingJobSet", False, "JobSetCompleted", "jobset completed successfully")
            look.status["terminalState"] = "Completed"
            return 0.0  # active Jobs are removed in the next pass
        self._create_companions(look)
        self._create_jobs(look, seen, suspended)
        self._suspend_or_resume(look, seen, suspended)
        return None

    def _expire(self, look: _Pass) -> float | None:
        ttl = look.jobset["spec"].get("ttlSecondsAfterFinished")
        if ttl is None:
            return None
        ended = condition({"status": look.status}, "Completed") or condition({"status": look.status}, "Failed") or {}
        left = float(ttl - seconds_between(ended["lastTransitionTime"], look.now))
        if left > 0:
            return left
        self._cluster.delete(
            JOBSET, name_of(look.jobset), namespace_of(look.jobset), propagation="Foreground", uid=uid_of(look.jobset)
        )
        return None

    def _fail_or_restart(self, look: _Pass) -> None:
        decided = verdict({**look.jobset, "status": look.status}, look.children.failed)
        if decided.outcome == "fail":
            look.set("Failed", True, decided.reason, decided.message, "Warning")
            look.set("RestartingJobSet", False, "JobSetFailed", "jobset failed")
            look.status["terminalState"] = "Failed"
            return
        look.status["restarts"] = (look.status.get("restarts") or 0) + 1
        if decided.counted:
            look.status["restartsCountTowardsMax"] = (look.status.get("restartsCountTowardsMax") or 0) + 1
        look.set("RestartingJobSet", True, decided.reason, decided.message, "Warning")

    def _create_companions(self, look: _Pass) -> None:
        wanted = [(CLAIM, claim, "PVCCreationFailed") for claim in volume_claims(look.jobset)]
        service = headless_service(look.jobset)
        if service is not None:
            wanted.insert(0, (SERVICE, service, "HeadlessServiceCreationFailed"))
        for kind, obj, reason in wanted:
            try:
                self._cluster.get(kind, name_of(obj), namespace_of(obj))
            except NotFound:
                self._create(look, obj, reason)

    def _create_jobs(self, look: _Pass, seen: list[Obj], suspended: bool) -> None:
        jobset, children = look.jobset, look.children
        strategy = (jobset["spec"].get("failurePolicy") or {}).get("restartStrategy")
        if strategy == "BlockingRecreate" and children.previous:
            return
        in_order = jobset["spec"].get("startupPolicy", {}).get("startupPolicyOrder") == "InOrder" and not suspended
        taken = {name_of(job) for job in children.all}
        for replicated in jobset["spec"].get("replicatedJobs") or []:
            if not dependencies_met(replicated, jobset, seen):
                continue
            entry = next(entry for entry in seen if entry["name"] == replicated["name"])
            if in_order and entry["ready"] + entry["succeeded"] + entry["failed"] == replicated.get("replicas", 1):
                continue
            for job in child_jobs({**jobset, "status": look.status}, replicated):
                if name_of(job) not in taken:
                    self._create(look, job, "JobCreationFailed")
            if in_order:
                self._exclusive(look, "StartupPolicyInProgress", "StartupPolicyCompleted", "InOrderStartupPolicyInProgress")
                return
        if in_order:
            self._exclusive(look, "StartupPolicyCompleted", "StartupPolicyInProgress", "InOrderStartupPolicyCompleted")

    def _exclusive(self, look: _Pass, kind: str, other: str, reason: str) -> None:
        words = "is in progress" if kind.endswith("InProgress") else "has completed"
        look.set(kind, True, reason, f"in order startup policy {words}")
        opposite = condition({"status": look.status}, other)
        if opposite is not None:
            opposite["status"] = "False"

    def _suspend_or_resume(self, look: _Pass, seen: list[Obj], suspended: bool) -> None:
        if suspended:
            for job in look.children.active:
                if not job["spec"].get("suspend"):
                    self._cluster.patch(JOB, name_of(job), {"spec": {"suspend": True}}, namespace_of(job))
            look.set("Suspended", True, "SuspendedJobs", "jobset is suspended")
            look.set("RestartingJobSet", False, "JobSetSuspended", "jobset is suspended")
            return
        for replicated in look.jobset["spec"].get("replicatedJobs") or []:
            if not dependencies_met(replicated, look.jobset, seen):
                continue
            for job in look.children.active:
                if job["spec"].get("suspend") and job["metadata"]["labels"].get(names.REPLICATED_JOB_LABEL) == replicated["name"]:
                    self._resume(job, replicated)
        look.set("Suspended", False, "ResumeJobs", "jobset is resumed")

    def _resume(self, job: Obj, replicated: Obj) -> None:
        """Unsuspend a Job with what may have changed meanwhile: labels, annotations, node selector, tolerations, gates."""
        template = replicated["template"]["spec"]["template"]
        metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
        patch: Obj = {"metadata": {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}}
        patch["spec"] = {key: spec[key] for key in ("nodeSelector", "tolerations", "schedulingGates") if spec.get(key)}
        template_patch = {key: value for key, value in patch.items() if value}
        wanted: Obj = {"suspend": False} | ({"template": template_patch} if template_patch else {})
        self._cluster.patch(JOB, name_of(job), {"spec": wanted}, namespace_of(job))

    def _create(self, look: _Pass, obj: Obj, reason: str) -> None:
        try:
            self._cluster.create(obj)
        except AlreadyExists:
            return
        except ApiError as error:
            record_event(self._cluster, look.jobset, "Warning", reason, error.message, SOURCE)
            raise

    def _delete(self, jobs: list[Obj]) -> None:
        for job in jobs:
            if not is_deleting(job):
                try:
                    self._cluster.delete(JOB, name_of(job), namespace_of(job), propagation="Foreground", uid=uid_of(job))
                except NotFound:
                    continue
