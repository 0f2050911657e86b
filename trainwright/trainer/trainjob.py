"""The TrainJob controller: builds and applies a TrainJob's objects, and copies the JobSet's result to the TrainJob's status.

Beside it runs a controller for runtimes from before Trainer 2.3: TrainJobs have snapshots of their runtime since, and nothing else
would remove the finalizer "in use", so that such a runtime could never be deleted.
Source of the behaviour: Trainer after 2.3 (reference sections 2.1, 2.19 and 3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from trainwright.api import names
from trainwright.api.admission.admit import admit
from trainwright.api.conditions import condition, is_finished, set_condition, set_from_jobset, set_suspended
from trainwright.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, CONFIG_MAP, JOBSET, SECRET, TRAINING_RUNTIME, TRAINJOB, Kind, kind_of
from trainwright.api.objects import (
    Obj,
    controller_of,
    copy_of,
    is_controlled_by,
    is_deleting,
    name_of,
    namespace_of,
    owner_reference,
)
from trainwright.api.patching.json_patch import difference
from trainwright.api.times import parse_time, rfc3339
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, object_key, owner_key
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.queue import Key
from trainwright.jobs.state.left_behind import Ended, end_if_left_behind, look
from trainwright.jobs.state.waiters import active_lease_of
from trainwright.materialize import (
    RandomKeys,
    Settings,
    build_snapshot,
    load_snapshot,
    materialize,
    objects_to_apply,
    snapshot_name,
)
from trainwright.submission.runtime_lookup import resolve_in_cluster

_MAX_ERROR = 950
log = logging.getLogger(__name__)
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


def trainjob_controller(
    cluster: Cluster, settings: Callable[[], Settings], *, bundled: bool, companions: bool = True, clock: Clock = utc_now
) -> Controller:
    """Return the controller. `settings` is called for each build; `bundled` allows runtimes of the catalogue.

    Without `companions`, ConfigMaps and Secrets of TrainJobs are not watched, which requires permission to read all of them.
    """
    reconciler = TrainJobReconciler(cluster, settings, bundled=bundled, clock=clock)
    of_trainjob = owner_key("TrainJob")
    watches = {TRAINJOB: object_key, JOBSET: of_trainjob}

    def unless_new(change: str, obj: Obj) -> list[Key]:  # just created here, or listed together with its TrainJob
        return [] if change == "ADDED" else of_trainjob(obj)

    changes = {CONFIG_MAP: unless_new, SECRET: unless_new} if companions else {}
    return Controller("trainjob", reconciler.reconcile, watches, workers=2, changes=changes)


class TrainJobReconciler:
    def __init__(self, cluster: Cluster, settings: Callable[[], Settings], *, bundled: bool, clock: Clock = utc_now):
        self._cluster, self._settings, self._bundled, self._clock = cluster, settings, bundled, clock

    def reconcile(self, key: Key) -> float | None:
        namespace, name = key
        try:
            job = self._cluster.get(TRAINJOB, name, namespace)
        except NotFound:  # deleted: owner references collect what it had
            return None
        is_foreign = job["spec"].get("managedBy", names.TRAINJOB_CONTROLLER) != names.TRAINJOB_CONTROLLER
        if is_foreign or is_deleting(job):
            return None  # Kueue's, for example, or being deleted: what exists stays as it is
        before = copy_of(job.get("status") or {})
        status = job.setdefault("status", {})
        failure: ApiError | None = None
        if not is_finished(job):
            try:
                self._build(job)
            except Conflict:  # another writer was faster, which says nothing about the job: retried without an Event
                raise
            except ApiError as error:  # reported, and the status is written all the same
                text = error.message[:_MAX_ERROR] + (" ..." if len(error.message) > _MAX_ERROR else "")
                message = f"TrainJob resources reconciliation failed: {text}"
                record_event(
                    self._cluster, job, "Warning", "TrainJobResourcesCreationFailed", message, "trainer-trainjob-controller"
                )
                failure = error
        now = rfc3339(self._clock())
        set_suspended(job, status, now)
        jobset = self._jobset(job)
        if jobset is not None:
            set_from_jobset(status, jobset, now)
        requeue_after = _earliest(self._enforce_deadline(job, status, now), self._end_if_left_behind(job))
        if change := difference(before, status):
            self._cluster.patch(TRAINJOB, name, {"status": change}, namespace, subresource="status")
        if failure is not None and not isinstance(failure, Invalid):
            raise failure
        return requeue_after if failure is None else 30.0  # invalid builds are retried rarely, since the runtime may change

    def _jobset(self, job: Obj) -> Obj | None:
        """Return the JobSet with the TrainJob's name. A foreign one is ignored once it has finished or is being deleted."""
        try:
            jobset = self._cluster.get(JOBSET, name_of(job), namespace_of(job))
        except NotFound:  # not built yet, or deleted at the deadline
            return None
        is_foreign = not is_controlled_by(jobset, job)
        return None if is_foreign and (_is_leftover(jobset, job) or is_finished(jobset)) else jobset

    def _build(self, job: Obj) -> None:
        """Create or update the TrainJob's objects."""
        snapshot = self._snapshot(job)
        runtime = (
            load_snapshot(snapshot, job)
            if snapshot is not None
            else resolve_in_cluster(self._cluster, job["spec"]["runtimeRef"], namespace_of(job), bundled=self._bundled).runtime
        )
        objects = materialize(job, runtime, settings=self._settings(), keys=RandomKeys())
        if objects and snapshot is None:  # only after a successful build, so that a corrected runtime is used until then
            objects.insert(0, build_snapshot(job, runtime))
        for obj in objects:
            obj["metadata"]["ownerReferences"] = [owner_reference(job)]
            self._apply(job, obj)

    def _snapshot(self, job: Obj) -> Obj | None:
        """Return the ConfigMap with the runtime of the first build, or None before that."""
        try:
            snapshot = self._cluster.get(CONFIG_MAP, snapshot_name(job), namespace_of(job))
        except NotFound:  # the first build, or it was deleted by hand
            return None
        if not is_controlled_by(snapshot, job):
            _raise_foreign(snapshot, job)
        return snapshot

    def _apply(self, job: Obj, desired: Obj) -> None:
        kind = kind_of(desired)
        assert kind is not None, desired["kind"]
        if kind is SECRET:  # never read: that permission would reveal every Secret whose name can be guessed
            try:
                self._cluster.create(desired)
            except AlreadyExists:  # by an earlier build: it is never changed
                return
            except Forbidden:  # an optional right; the controller that made the JobSet has made the Secret before it
                if self._jobset(job) is None:
                    raise
            return
        try:
            existing = self._cluster.get(kind, name_of(desired), namespace_of(desired))
        except NotFound:
            try:
                self._cluster.create(desired)
            except AlreadyExists:  # created concurrently; the next reconcile sees it
                return
            return  # what was created needs no update
        is_foreign = kind is JOBSET and not is_controlled_by(existing, job)
        if is_foreign and (_is_leftover(existing, job) or is_finished(existing)):
            _raise_foreign(existing, job)
        if objects_to_apply([desired], job, lambda _desired: existing):
            self._update(kind, existing, admit(desired).object)  # with the same defaults as the stored object

    def _update(self, kind: Kind, existing: Obj, desired: Obj) -> None:
        patch: Obj = {}
        for part in ("spec", "data"):
            if part in desired:
                current = {key: (existing.get(part) or {}).get(key) for key in desired[part]}
                change = difference(current, desired[part])
                if change:
                    patch[part] = change
        labels = (desired["metadata"].get("labels") or {}).items() - (existing["metadata"].get("labels") or {}).items()
        annotations = (desired["metadata"].get("annotations") or {}).items() - (
            existing["metadata"].get("annotations") or {}
        ).items()
        if labels or annotations:
            patch["metadata"] = {"labels": dict(labels), "annotations": dict(annotations)}
        if patch:
            self._cluster.patch(kind, name_of(desired), patch, namespace_of(desired))

    def _end_if_left_behind(self, job: Obj) -> float | None:
        """Suspend or delete the job if nobody waits for it any more; returns the seconds after which that may be so.

        Those who wait are looked for only when the lease has expired: this controller watches no workflows.
        """
        lease = active_lease_of(job)
        if lease is None or (left := lease.seconds_left(self._clock())) > 0:
            return left if lease is not None else None
        try:
            ended = end_if_left_behind(self._cluster, job, partial(look, self._cluster), self._clock)
        except Forbidden as error:  # an optional right
            log.warning("event=left_job_not_ended name=%s error=%s", name_of(job), error.message)
            return None
        report_left_job(self._cluster, ended, "trainer-trainjob-controller")
        return ended.decision.look_again

    def _enforce_deadline(self, job: Obj, status: Obj, now: str) -> float | None:
        """Fail a TrainJob past its deadline and delete its JobSet; otherwise return the remaining seconds."""
        seconds = job["spec"].get("activeDeadlineSeconds")
        if not seconds or is_finished(job) or job["spec"].get("suspend"):
            return None  # without a deadline, over, or suspended: the time then does not count
        resumed = condition(job, "Suspended")
        start = job["metadata"]["creationTimestamp"]
        if resumed is not None and resumed["status"] == "False":
            start = resumed["lastTransitionTime"]
        left = float(seconds - (self._clock() - parse_time(start)).total_seconds())
        if left > 0:
            return max(left, 1.0)
        set_condition(status, "Failed", True, "DeadlineExceeded", "TrainJob exceeded its active deadline", now)
        try:
            self._cluster.delete(JOBSET, name_of(job), namespace_of(job))
        except NotFound:  # the build failed, or an earlier reconcile has deleted it
            return None
        return None


def report_left_job(cluster: Cluster, ended: Ended, source: str) -> None:
    """Log that a job which nobody waits for any more was suspended or deleted, and record an Event; nothing if it was left alone."""
    if ended.outcome is None:
        return
    where, reason = f"namespace={namespace_of(ended.trainjob)} name={name_of(ended.trainjob)}", ended.decision.reason
    log.warning("event=trainjob_left_behind %s reason=%r outcome=%r", where, reason, ended.outcome.value)
    message = f"nobody waits for it: {reason}; {ended.outcome.value}"
    record_event(cluster, ended.trainjob, "Warning", "WaiterGone", message, source)


def _earliest(*seconds: float | None) -> float | None:
    return min((each for each in seconds if each is not None), default=None)


def _raise_foreign(found: Obj, job: Obj) -> None:
    """Raise Conflict for an object of an earlier TrainJob, which will be deleted soon, otherwise Invalid."""
    what = f"the {found['kind']} {name_of(found)}"
    if _is_leftover(found, job):
        raise Conflict(f"{what} of an earlier TrainJob is not deleted yet")
    raise Invalid(f"{what} exists and belongs to another object; give the TrainJob another name")


def _is_leftover(found: Obj, job: Obj) -> bool:
    """Whether an object is being deleted, or belongs to an earlier TrainJob with this name."""
    owner = controller_of(found)
    return is_deleting(found) or (owner is not None and owner.get("kind") == "TrainJob" and owner.get("name") == name_of(job))


def runtime_finalizer(cluster: Cluster, kinds: tuple[Kind, ...] = (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)) -> Controller:
    """Return the controller for runtimes of these kinds. Keys without a namespace are ClusterTrainingRuntimes."""

    def reconcile(key: Key) -> None:
        namespace, name = key
        kind = TRAINING_RUNTIME if namespace else CLUSTER_TRAINING_RUNTIME
        try:
            runtime = cluster.get(kind, name, namespace or None)
        except NotFound:  # deleted meanwhile, so it had no finalizer
            return
        finalizers = runtime["metadata"].get("finalizers") or []
        if names.RUNTIME_IN_USE not in finalizers:
            return
        kept = [entry for entry in finalizers if entry != names.RUNTIME_IN_USE]
        patch = {"metadata": {"finalizers": kept or None, "resourceVersion": runtime["metadata"]["resourceVersion"]}}
        cluster.patch(kind, name, patch, namespace or None)

    return Controller("runtime", reconcile, dict.fromkeys(kinds, object_key))
