"""The TrainJob controller: runtime to objects, objects to the cluster, the JobSet's verdict back into the TrainJob's status.

Source of the behaviour: Trainer after 2.3 (reference sections 2.1, 2.19 and 3).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from trainwright.api import names
from trainwright.api.admission import admit
from trainwright.api.conditions import condition, is_finished, set_condition
from trainwright.api.errors import AlreadyExists, ApiError, Conflict, Invalid, NotFound
from trainwright.api.kinds import (
    CONFIG_MAP,
    JOBSET,
    SECRET,
    TRAINJOB,
    Kind,
    kind_of,
)
from trainwright.api.merge_patch import difference
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
from trainwright.api.times import parse_time, rfc3339
from trainwright.api.trainjob_status import set_from_jobset, set_suspended
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.runtime_lookup import runtime_lookup
from trainwright.controlplane.controllers.controller import Controller, key_of_controller, own_key
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.queue import Key
from trainwright.materialize import FreshKeys, Settings, due, materialize, runtime_in, runtime_snapshot, snapshot_name
from trainwright.runtimes import resolve_runtime

_LONGEST_ERROR = 950
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


def trainjob_controller(
    cluster: Cluster, settings: Callable[[], Settings], *, bundled: bool, companions: bool = True, clock: Clock = utc_now
) -> Controller:
    """The controller. `settings` is asked at each build; `bundled` lets runtimes come from the catalogue.

    Without `companions` the ConfigMaps and Secrets of TrainJobs are not watched, which takes the right to read all of them.
    """
    reconciler = TrainJobReconciler(cluster, settings, bundled=bundled, clock=clock)
    of_trainjob = key_of_controller("TrainJob")
    watches = {TRAINJOB: own_key, JOBSET: of_trainjob}

    def unless_new(change: str, obj: Obj) -> list[Key]:  # made by ourselves a moment ago, or found together with its TrainJob
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
        except NotFound:
            return None
        foreign = job["spec"].get("managedBy", names.TRAINJOB_CONTROLLER) != names.TRAINJOB_CONTROLLER
        if foreign or is_deleting(job):
            return None
        before = copy_of(job.get("status") or {})
        status = job.setdefault("status", {})
        failure: ApiError | None = None
        if not is_finished(job):
            try:
                self._build(job)
            except Conflict:
                raise
            except ApiError as error:
                text = error.message[:_LONGEST_ERROR] + (" ..." if len(error.message) > _LONGEST_ERROR else "")
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
        again = self._enforce_deadline(job, status, now)
        if change := difference(before, status):
            self._cluster.patch(TRAINJOB, name, {"status": change}, namespace, subresource="status")
        if failure is not None and not isinstance(failure, Invalid):
            raise failure
        return again if failure is None else 30.0  # a build that the rules refuse is tried again rarely: the runtime may change

    def _jobset(self, job: Obj) -> Obj | None:
        """The JobSet of the TrainJob's name. One of somebody else is shown as it is, but never taken for the job's end."""
        try:
            jobset = self._cluster.get(JOBSET, name_of(job), namespace_of(job))
        except NotFound:
            return None
        foreign = not is_controlled_by(jobset, job)
        return None if foreign and (_is_leftover(jobset, job) or is_finished(jobset)) else jobset

    def _build(self, job: Obj) -> None:
        """Create or change what the TrainJob should have."""
        snapshot = self._snapshot(job)
        runtime = runtime_in(snapshot, job) if snapshot is not None else self._resolved(job)
        objects = materialize(job, runtime, settings=self._settings(), keys=FreshKeys())
        if objects and snapshot is None:  # kept once it has proved to work; until then a corrected runtime is taken
            objects.insert(0, runtime_snapshot(job, runtime))
        for obj in objects:
            obj["metadata"]["ownerReferences"] = [owner_reference(job)]
            self._apply(job, obj)

    def _snapshot(self, job: Obj) -> Obj | None:
        """The runtime as it was when the job was first built, or None before that."""
        try:
            snapshot = self._cluster.get(CONFIG_MAP, snapshot_name(job), namespace_of(job))
        except NotFound:
            return None
        if not is_controlled_by(snapshot, job):
            _refuse_foreign(snapshot, job)
        return snapshot

    def _resolved(self, job: Obj) -> Obj:
        lookup = runtime_lookup(self._cluster, namespace_of(job))
        return resolve_runtime(job["spec"]["runtimeRef"], lookup, bundled=self._bundled).runtime

    def _apply(self, job: Obj, wanted: Obj) -> None:
        kind = kind_of(wanted)
        assert kind is not None, wanted["kind"]
        try:
            existing = self._cluster.get(kind, name_of(wanted), namespace_of(wanted))
        except NotFound:
            try:
                self._cluster.create(wanted)
            except AlreadyExists:  # between our look and our write; the next pass sees it
                return
            return
        foreign = kind is JOBSET and not is_controlled_by(existing, job)
        if foreign and (_is_leftover(existing, job) or is_finished(existing)):
            _refuse_foreign(existing, job)
        if due([wanted], job, lambda _wanted: existing):
            self._change(kind, existing, admit(wanted).object)  # with the defaults that the stored one has

    def _change(self, kind: Kind, existing: Obj, wanted: Obj) -> None:
        patch: Obj = {}
        for part in ("spec", "data"):
            if part in wanted:
                kept = {key: (existing.get(part) or {}).get(key) for key in wanted[part]}
                change = difference(kept, wanted[part])
                if change:
                    patch[part] = change
        labels = (wanted["metadata"].get("labels") or {}).items() - (existing["metadata"].get("labels") or {}).items()
        annotations = (wanted["metadata"].get("annotations") or {}).items() - (
            existing["metadata"].get("annotations") or {}
        ).items()
        if labels or annotations:
            patch["metadata"] = {"labels": dict(labels), "annotations": dict(annotations)}
        if patch:
            self._cluster.patch(kind, name_of(wanted), patch, namespace_of(wanted))

    def _enforce_deadline(self, job: Obj, status: Obj, now: str) -> float | None:
        """Fail a TrainJob past its deadline and remove its JobSet; else return the seconds that are left."""
        seconds = job["spec"].get("activeDeadlineSeconds")
        if not seconds or is_finished(job) or job["spec"].get("suspend"):
            return None
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
        except NotFound:
            return None
        return None


def _refuse_foreign(found: Obj, job: Obj) -> None:
    """What a predecessor has left goes by itself: Conflict, to be tried again soon. Anybody else's stays: Invalid."""
    what = f"the {found['kind']} {name_of(found)}"
    if _is_leftover(found, job):
        raise Conflict(f"{what} of an earlier TrainJob is not gone yet")
    raise Invalid(f"{what} exists and belongs to somebody else; give the TrainJob another name")


def _is_leftover(found: Obj, job: Obj) -> bool:
    """Whether an object is on its way out, or belongs to an earlier TrainJob of this name."""
    owner = controller_of(found)
    return is_deleting(found) or (owner is not None and owner.get("kind") == "TrainJob" and owner.get("name") == name_of(job))
