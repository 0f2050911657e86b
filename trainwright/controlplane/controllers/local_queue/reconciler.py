"""One pass over the queues: who may start is resumed, who waits is told its position. All that is known is in the objects.

A TrainJob is counted from when it is not suspended until it ends or is suspended again. One that somebody suspends after its
admission is left alone: who stopped it has it go on.
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
    annotations_of,
    controller_of,
    is_controlled_by,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from trainwright.api.times import now
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.local_queue.settings import CONFIG_MAP_NAME, FIELD, Queue, QueueError, parse_queues
from trainwright.controlplane.controllers.local_queue.waiting import Job, Verdict, verdicts
from trainwright.controlplane.controllers.queue import Key
from trainwright.controlplane.controllers.scheduler.gangs import stages
from trainwright.controlplane.controllers.scheduler.room import add
from trainwright.jobs.scheduling import PRIORITY_LABEL
from trainwright.materialize.pod_requests import Requests

PASS: Key = ("", "pass")
SOURCE = "trainwright-queue"
log = logging.getLogger(__name__)


def local_queue(cluster: Cluster) -> Controller:
    """It does nothing until the ConfigMap is there."""
    made = LocalQueue(cluster)
    return Controller("local-queue", made.reconcile, made.watches())


class LocalQueue:
    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        self._sums: dict[str, tuple[object, Requests]] = {}

    def watches(self) -> dict[Kind, Callable[[Obj], Iterable[Key]]]:
        return {
            TRAINJOB: lambda job: [PASS] if names.QUEUE_LABEL in labels_of(job) else [],
            JOBSET: lambda jobset: [PASS] if (controller_of(jobset) or {}).get("kind") == TRAINJOB.kind else [],
            CONFIG_MAP: lambda found: [PASS] if (namespace_of(found), name_of(found)) == CONFIG_MAP_NAME else [],
            PRIORITY_CLASS: lambda _found: [PASS],
        }

    def reconcile(self, _key: Key) -> float | None:
        queues = self._queues()
        if queues is None:
            return None
        trainjobs = {_key_of(job): job for job in self._cluster.list(TRAINJOB).items if _concerns(job)}
        if not trainjobs:
            self._sums.clear()
            return None
        lines: dict[str, list[Job]] = {}
        jobsets = {_key_of(jobset): jobset for jobset in self._cluster.list(JOBSET).items}
        priorities = {name_of(found): int(found.get("value") or 0) for found in self._cluster.list(PRIORITY_CLASS).items}
        for key, trainjob in trainjobs.items():
            running = not trainjob["spec"].get("suspend")
            if running and _queue_of(trainjob) in queues:
                self._say(trainjob, Verdict(key, True, "Admitted", f"admitted by queue {_queue_of(trainjob)}"))
            elif not running and _was_stopped(trainjob):
                self._say(
                    trainjob, Verdict(key, False, "Suspended", "suspended after it had been admitted, or by its own cancel")
                )
                continue
            priority = priorities.get(labels_of(trainjob).get(PRIORITY_LABEL, ""), 0)
            created = str(trainjob["metadata"].get("creationTimestamp") or "")
            job = Job(key, priority, created, running, self._requests(trainjob, jobsets.get(key)))
            lines.setdefault(_queue_of(trainjob), []).append(job)
        for name, jobs in lines.items():
            self._serve(queues.get(name), name, jobs, trainjobs, sorted(queues))
        return None

    def _queues(self) -> dict[str, Queue] | None:
        namespace, name = CONFIG_MAP_NAME
        try:
            found = self._cluster.get(CONFIG_MAP, name, namespace)
        except NotFound:
            return None
        try:
            return parse_queues(str((found.get("data") or {}).get(FIELD) or ""))
        except QueueError as error:  # nobody is admitted until it is mended; its change wakes us
            record_event(self._cluster, found, "Warning", "InvalidQueues", str(error), SOURCE)
            log.warning("event=queues_invalid error=%s", error)
            return None

    def _requests(self, trainjob: Obj, jobset: Obj | None) -> Requests | None:
        """What all steps ask for together, initializers too, as Kueue counts; from the JobSet, which exists while suspended."""
        if jobset is None or not is_controlled_by(jobset, trainjob):
            return None
        version = jobset["metadata"].get("generation")
        known = self._sums.get(uid_of(jobset))
        if known is None or known[0] != version:
            total: Requests = {}
            for stage in stages(jobset):
                for _, count, requests in stage:
                    add(total, requests, count)
            known = self._sums[uid_of(jobset)] = (version, total)
        return known[1]

    def _serve(self, queue: Queue | None, name: str, jobs: list[Job], trainjobs: dict[Key, Obj], known: list[str]) -> None:
        if queue is None:
            message = f"there is no queue {name}; there are: {', '.join(known) or 'none'}"
            for job in jobs:
                if not job.running:
                    self._say(trainjobs[job.key], Verdict(job.key, False, "QueueNotFound", message))
            return
        for verdict in verdicts(queue, jobs):
            if verdict.admitted:
                self._resume(trainjobs[verdict.key])
            self._say(trainjobs[verdict.key], verdict)

    def _resume(self, trainjob: Obj) -> None:
        """This version of it and no other. Raises Conflict, NotFound: then the pass begins anew with what is there."""
        patch = {"metadata": {"resourceVersion": trainjob["metadata"]["resourceVersion"]}, "spec": {"suspend": False}}
        self._cluster.patch(TRAINJOB, name_of(trainjob), patch, namespace_of(trainjob))

    def _say(self, trainjob: Obj, verdict: Verdict) -> None:
        """Write what its queue says of it, where that is new."""
        before = condition(trainjob, names.QUOTA_RESERVED)
        wanted = (str(verdict.admitted), verdict.reason, verdict.message)
        if before is not None and (before["status"], before.get("reason"), before.get("message")) == wanted:
            return
        current = self._cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
        if uid_of(current) != uid_of(trainjob):
            raise Conflict(f"TrainJob {name_of(trainjob)} is another one by now")
        status = {"conditions": (current.get("status") or {}).get("conditions") or []}
        set_condition(status, names.QUOTA_RESERVED, verdict.admitted, verdict.reason, verdict.message, now())
        patch = {"metadata": {"resourceVersion": current["metadata"]["resourceVersion"]}, "status": status}
        self._cluster.patch(TRAINJOB, name_of(trainjob), patch, namespace_of(trainjob), subresource="status")
        if before is None or before.get("reason") != verdict.reason:
            record_event(self._cluster, trainjob, "Normal", verdict.reason, verdict.message, SOURCE)


def _concerns(trainjob: Obj) -> bool:
    foreign = trainjob["spec"].get("managedBy", names.TRAINJOB_CONTROLLER) != names.TRAINJOB_CONTROLLER
    return bool(_queue_of(trainjob)) and not foreign and not is_deleting(trainjob) and not is_finished(trainjob)


def _was_stopped(trainjob: Obj) -> bool:
    """Suspended by somebody who meant it: after its admission, or by the cancel of the step that it belongs to."""
    ours = names.suspended_by_us(int(trainjob["metadata"].get("generation") or 0))
    notes = annotations_of(trainjob)
    if notes.get(names.SUSPENDED_BY_ANNOTATION) == ours or names.SUPERSEDED_ANNOTATION in notes:
        return True
    said = condition(trainjob, names.QUOTA_RESERVED)
    return said is not None and (said["status"] == "True" or said.get("reason") == "Suspended")


def _queue_of(trainjob: Obj) -> str:
    return labels_of(trainjob).get(names.QUEUE_LABEL, "")


def _key_of(obj: Obj) -> Key:
    return namespace_of(obj), name_of(obj)
