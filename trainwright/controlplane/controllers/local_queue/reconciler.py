"""Reconciles the queues: resumes admitted TrainJobs and writes conditions of the others. All state is in the objects.

A TrainJob uses quota while it is not suspended and has not finished. One that is suspended after its admission is not resumed
again; that is up to the user who suspended it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from trainwright.api import names
from trainwright.api.conditions import condition, is_finished, set_condition
from trainwright.api.errors import Conflict, NotFound
from trainwright.api.kinds import CONFIG_MAP, JOBSET, PRIORITY_CLASS, TRAINJOB, Kind
from trainwright.api.objects import (
    Obj,
    controller_of,
    is_controlled_by,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from trainwright.api.phase import is_superseded, is_suspended_by_us
from trainwright.api.quantities import Requests
from trainwright.api.times import now
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.local_queue.admission import AdmissionDecision, QueuedJob, admission_decisions
from trainwright.controlplane.controllers.local_queue.settings import FIELD, Queue, QueueError, parse_queues
from trainwright.controlplane.controllers.queue import Key
from trainwright.controlplane.controllers.scheduler.gangs import add, stages

_PASS: Key = ("", "pass")
SOURCE = "trainwright-queue"
log = logging.getLogger(__name__)


def local_queue(cluster: Cluster) -> Controller:
    """Return the controller. It does nothing until the ConfigMap exists."""
    found = LocalQueue(cluster)
    return Controller("local-queue", lambda _pass: found.run_pass(), found.watches())


class LocalQueue:
    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        self._sums: dict[str, tuple[object, Requests]] = {}

    def watches(self) -> dict[Kind, Callable[[Obj], Iterable[Key]]]:
        return {
            TRAINJOB: lambda job: [_PASS] if names.QUEUE_LABEL in labels_of(job) else [],
            JOBSET: lambda jobset: [_PASS] if (controller_of(jobset) or {}).get("kind") == TRAINJOB.kind else [],
            CONFIG_MAP: lambda found: [_PASS] if (namespace_of(found), name_of(found)) == names.QUEUES_CONFIG_MAP else [],
            PRIORITY_CLASS: lambda _found: [_PASS],
        }

    def run_pass(self) -> None:
        """Admit or suspend the jobs of all queues: whether one fits depends on the others, so there are no keys."""
        queues = self._queues()
        if queues is None:
            return  # no queues, or invalid ones: nothing is admitted or suspended
        trainjobs = {_key_of(job): job for job in self._cluster.list(TRAINJOB).items if _is_queued(job)}
        if not trainjobs:
            self._sums.clear()
            return  # no job is queued
        lines: dict[str, list[QueuedJob]] = {}
        jobsets = {_key_of(jobset): jobset for jobset in self._cluster.list(JOBSET).items}
        priorities = {name_of(found): int(found.get("value") or 0) for found in self._cluster.list(PRIORITY_CLASS).items}
        for key, trainjob in trainjobs.items():
            is_running = not trainjob["spec"].get("suspend")
            if is_running and _queue_of(trainjob) in queues:
                self._write_decision(
                    trainjob, AdmissionDecision(key, True, "Admitted", f"admitted by queue {_queue_of(trainjob)}")
                )
            elif not is_running and _is_suspended_by_user(trainjob):
                self._write_decision(
                    trainjob,
                    AdmissionDecision(key, False, "Suspended", "suspended after it had been admitted, or by its own cancel"),
                )
                continue  # not in the line: whether it is resumed is up to the user
            priority = priorities.get(labels_of(trainjob).get(names.QUEUE_PRIORITY_LABEL, ""), 0)
            created = str(trainjob["metadata"].get("creationTimestamp") or "")
            job = QueuedJob(key, priority, created, is_running, self._requests(trainjob, jobsets.get(key)))
            lines.setdefault(_queue_of(trainjob), []).append(job)
        for name, jobs in lines.items():
            self._process_queue(queues.get(name), name, jobs, trainjobs, sorted(queues))

    def _queues(self) -> dict[str, Queue] | None:
        namespace, name = names.QUEUES_CONFIG_MAP
        try:
            found = self._cluster.get(CONFIG_MAP, name, namespace)
        except NotFound:  # this cluster has no queues
            return None
        try:
            return parse_queues(str((found.get("data") or {}).get(FIELD) or ""))
        except QueueError as error:  # no job is admitted until the ConfigMap is fixed, which triggers a reconcile
            record_event(self._cluster, found, "Warning", "InvalidQueues", str(error), SOURCE)
            log.warning("event=queues_invalid error=%s", error)
            return None

    def _requests(self, trainjob: Obj, jobset: Obj | None) -> Requests | None:
        """Return the requests of all steps including initializers, like Kueue, from the JobSet, which exists while suspended."""
        if jobset is None or not is_controlled_by(jobset, trainjob):
            return None  # not built yet, or of an earlier TrainJob with its name
        version = jobset["metadata"].get("generation")
        known = self._sums.get(uid_of(jobset))
        if known is None or known[0] != version:
            total: Requests = {}
            for stage in stages(jobset):
                for _, count, requests in stage:
                    add(total, requests, count)
            known = self._sums[uid_of(jobset)] = (version, total)
        return known[1]

    def _process_queue(
        self, queue: Queue | None, name: str, jobs: list[QueuedJob], trainjobs: dict[Key, Obj], known: list[str]
    ) -> None:
        if queue is None:
            message = f"there is no queue {name}; there are: {', '.join(known) or 'none'}"
            for job in jobs:
                if not job.is_running:
                    self._write_decision(trainjobs[job.key], AdmissionDecision(job.key, False, "QueueNotFound", message))
            return  # it waits until such a queue is added
        for decision in admission_decisions(queue, jobs):
            trainjob = trainjobs[decision.key]
            if decision.is_admitted:  # exactly this version: Conflict and NotFound repeat the reconcile with the current objects
                patch = {"metadata": {"resourceVersion": trainjob["metadata"]["resourceVersion"]}, "spec": {"suspend": False}}
                self._cluster.patch(TRAINJOB, name_of(trainjob), patch, namespace_of(trainjob))
            self._write_decision(trainjob, decision)

    def _write_decision(self, trainjob: Obj, decision: AdmissionDecision) -> None:
        """Write the decision as a condition and an Event, if it has changed."""
        before = condition(trainjob, names.QUOTA_RESERVED)
        desired = (str(decision.is_admitted), decision.reason, decision.message)
        if before is not None and (before["status"], before.get("reason"), before.get("message")) == desired:
            return  # said before
        current = self._cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
        if uid_of(current) != uid_of(trainjob):
            raise Conflict(f"TrainJob {name_of(trainjob)} has been replaced")  # the decision was about the earlier one
        status = {"conditions": (current.get("status") or {}).get("conditions") or []}
        set_condition(status, names.QUOTA_RESERVED, decision.is_admitted, decision.reason, decision.message, now())
        patch = {"metadata": {"resourceVersion": current["metadata"]["resourceVersion"]}, "status": status}
        self._cluster.patch(TRAINJOB, name_of(trainjob), patch, namespace_of(trainjob), subresource="status")
        if before is None or before.get("reason") != decision.reason:
            record_event(self._cluster, trainjob, "Normal", decision.reason, decision.message, SOURCE)


def _is_queued(trainjob: Obj) -> bool:
    is_foreign = trainjob["spec"].get("managedBy", names.TRAINJOB_CONTROLLER) != names.TRAINJOB_CONTROLLER
    return bool(_queue_of(trainjob)) and not is_foreign and not is_deleting(trainjob) and not is_finished(trainjob)


def _is_suspended_by_user(trainjob: Obj) -> bool:
    """Whether a suspended job was suspended deliberately: after its admission, or by cancelling its step."""
    if is_suspended_by_us(trainjob) or is_superseded(trainjob):
        return True
    reserved = condition(trainjob, names.QUOTA_RESERVED)
    return reserved is not None and (reserved["status"] == "True" or reserved.get("reason") == "Suspended")


def _queue_of(trainjob: Obj) -> str:
    return labels_of(trainjob).get(names.QUEUE_LABEL, "")


def _key_of(obj: Obj) -> Key:
    return namespace_of(obj), name_of(obj)
