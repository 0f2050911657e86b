"""The scheduler: updates its cache, binds pods that fit, and reports why others are unschedulable.

Like kube-scheduler it has no keys: order, gangs and what is free concern all pending pods at once. Changes are noted as they are seen,
and all that have come together are followed by one cycle, with cached totals of the bound pods.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from trainwright.api import names
from trainwright.api.conditions import condition, set_condition
from trainwright.api.errors import Conflict, NotFound
from trainwright.api.kinds import CLAIM, JOB, JOBSET, NODE, POD, Kind
from trainwright.api.objects import (
    Obj,
    annotations_of,
    controller_of,
    is_deleting,
    name_of,
    namespace_of,
    uid_of,
)
from trainwright.api.quantities import Requests
from trainwright.api.times import now
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.queue import Key
from trainwright.controlplane.controllers.scheduler.cycle import (
    NO_NODES,
    SOURCE,
    Cycle,
    gang_message,
    insufficient_message,
    report_too_large,
)
from trainwright.controlplane.controllers.scheduler.gangs import NodeResources, PodDemand, add, missing_requests, pod_demands
from trainwright.controlplane.controllers.scheduler.scheduler_cache import PodInfo, SchedulerCache

log = logging.getLogger(__name__)
_CYCLE: Key = ("", "cycle")
Unit = tuple[str, Key]
"""What is scheduled at once: jobset or pod, and its key."""


class BindingCluster(Cluster, Protocol):
    """A cluster with a method to bind pods to nodes."""

    def bind(self, name: str, namespace: str, node: str) -> None: ...


def scheduler(cluster: BindingCluster) -> Controller:
    found = Scheduler(cluster)
    return Controller("scheduler", lambda _cycle: found.run_cycle(), found.watches())


class Scheduler:
    """Not thread-safe."""

    def __init__(self, cluster: BindingCluster):
        self._cluster, self._cache = cluster, SchedulerCache()
        self._stale_pods: set[Key] = set()
        self._stale_jobsets: set[Key] = set()
        self._demands: dict[Key, list[PodDemand]] = {}
        self._is_primed, self._has_new_capacity = False, True

    def watches(self) -> dict[Kind, Callable[[Obj], Iterable[Key]]]:
        return {
            POD: self._on_pod,
            NODE: self._on_capacity,
            CLAIM: self._on_capacity,
            JOBSET: lambda jobset: self._on_jobset((namespace_of(jobset), name_of(jobset))),
            JOB: self._on_job,
        }

    def run_cycle(self) -> None:
        """Bind all pending pods that fit, as the cluster is now."""
        self._apply_changes()
        nodes = self._cluster.list(NODE).items
        preferred = [node for node in nodes if annotations_of(node).get(names.SINGLE_NODE_ANNOTATION)]
        node = next(iter([*preferred, *nodes]), None)  # other Node objects may exist without a machine
        if node is None:
            for entry in list(self._cache.pending.values()):
                self._report_unschedulable(entry, NO_NODES)
        else:
            for key in list(self._stale_jobsets):
                demands = self._demands.pop(key, None)
                if key in self._cache.by_jobset:
                    self._demands[key] = self._pod_demands(key, node)
                self._has_new_capacity |= demands != self._demands.get(key)
                self._stale_jobsets.discard(key)
            self._schedule(Cycle(self._cluster, node, NodeResources(node, self._cache.requested)))
        self._has_new_capacity = False

    def _on_pod(self, pod: Obj) -> list[Key]:
        self._stale_pods.add((namespace_of(pod), name_of(pod)))
        return [_CYCLE]

    def _on_capacity(self, seen: Obj) -> list[Key]:
        """Queue a cycle for any change: heartbeats, which would not matter, are not written here."""
        self._has_new_capacity = True
        if seen.get("kind") == NODE.kind:
            self._stale_jobsets.update(self._cache.by_jobset)
        return [_CYCLE]

    def _on_jobset(self, key: Key) -> list[Key]:
        self._stale_jobsets.add(key)
        return [_CYCLE] if key in self._cache.by_jobset else []

    def _on_job(self, job: Obj) -> list[Key]:
        owner = controller_of(job) or {}
        return self._on_jobset((namespace_of(job), owner["name"])) if owner.get("kind") == "JobSet" else []

    def _apply_changes(self) -> None:
        if not self._is_primed:
            for found in self._cluster.list(POD).items:
                self._update_pod((namespace_of(found), name_of(found)), found)
            self._is_primed = True
        for key in list(self._stale_pods):
            pod: Obj | None
            try:
                pod = self._cluster.get(POD, key[1], key[0])
            except NotFound:  # deleted: the cache forgets it
                pod = None
            self._update_pod(key, pod)
            self._stale_pods.discard(key)

    def _update_pod(self, key: Key, pod: Obj | None) -> None:
        self._has_new_capacity |= self._cache.update(key, pod)
        entry = self._cache.entries.get(key)
        if entry is None or pod is None:
            return  # it is not, or no longer, a pod that takes resources
        if entry.jobset is not None and entry.jobset not in self._demands:
            self._stale_jobsets.add(entry.jobset)
        if entry.is_bound and not entry.is_terminating:  # bound before a restart, or by the pod's creator, without the condition
            self._mark(pod, True, "", "")

    def _pod_demands(self, key: Key, node: Obj) -> list[PodDemand]:
        namespace, name = key
        try:
            jobset = self._cluster.get(JOBSET, name, namespace)
        except NotFound:  # deleted: its pods go with it, and none is missing
            return []
        selector = f"{names.JOBSET_NAME_LABEL}={name}"
        report_too_large(self._cluster, jobset, node)
        return pod_demands(jobset, self._cluster.list(JOB, namespace, label_selector=selector).items)

    def _schedule(self, cycle: Cycle) -> None:
        """Schedule started JobSets first, and reserve resources for their missing pods; then others by priority and age."""
        if not self._cache.pending:
            return  # the common case after a change of a bound pod
        units = self._units()
        for jobset in list(self._cache.bound_pods):
            for entry in units.pop(("jobset", jobset), []):
                self._schedule_alone(cycle, entry)
            cycle.resources.reserve(self._missing_requests(jobset))
        for unit, entries in sorted(units.items(), key=lambda unit: unit[1][0].order):
            if not self._has_new_capacity and all(entry.message for entry in entries):
                continue  # it did not fit before, and nothing was freed since
            kind, of = unit
            if kind == "jobset":
                self._schedule_together(cycle, entries, self._missing_requests(of), f"JobSet {of[0]}/{of[1]}")
            else:
                self._schedule_alone(cycle, entries[0])

    def _units(self) -> dict[Unit, list[PodInfo]]:
        """Return pending pods, grouped by what must be scheduled together, in order."""
        units: dict[Unit, list[PodInfo]] = {}
        for entry in sorted(self._cache.pending.values(), key=lambda entry: entry.order):
            unit = ("pod", entry.key) if entry.jobset is None else ("jobset", entry.jobset)
            units.setdefault(unit, []).append(entry)
        return units

    def _missing_requests(self, jobset: Key) -> Requests:
        return missing_requests(self._demands.get(jobset, []), self._cache.live_pods)

    def _schedule_alone(self, cycle: Cycle, entry: PodInfo) -> None:
        why = cycle.reason(entry)
        if not why:
            self._bind(cycle, entry)
        else:
            self._report_unschedulable(entry, why)

    def _schedule_together(self, cycle: Cycle, entries: list[PodInfo], reserved: Requests, gang: str) -> None:
        """Bind all of these pods and reserve `reserved`, or none."""
        total: Requests = dict(reserved)
        for entry in entries:
            add(total, entry.requests)
        insufficient = cycle.resources.insufficient(total)
        reasons = [cycle.misplaced(entry) for entry in entries]
        if not insufficient and not any(reasons):
            for entry in entries:
                self._bind(cycle, entry)
            cycle.resources.reserve(reserved)
            return  # the gang runs
        is_permanent = bool(cycle.resources.exceeding_capacity(total))
        first = next(filter(None, reasons), "")
        for entry, own in zip(entries, reasons, strict=True):
            if own or first:
                why = own or gang_message(first, gang)
            else:
                why = gang_message(
                    insufficient_message(insufficient, is_permanent=is_permanent, pod_spec=entry.pod["spec"]), gang
                )
            self._report_unschedulable(entry, why, event=entry is entries[0])

    def _bind(self, cycle: Cycle, entry: PodInfo) -> None:
        namespace, name = entry.key
        self._stale_pods.add(entry.key)  # refreshed in any case, since the write may not be persisted
        try:
            pod = self._cluster.get(POD, name, namespace)
            if uid_of(pod) != entry.uid or is_deleting(pod):
                return  # the cache is older: its event is on the way
            self._cluster.bind(name, namespace, cycle.node_name)
            message = f"Successfully assigned {namespace}/{name} to {cycle.node_name}"
            record_event(self._cluster, pod, "Normal", "Scheduled", message, SOURCE)
        except (NotFound, Conflict):  # deleted, or bound by another writer: the next cycle sees it
            return
        cycle.resources.reserve(entry.requests)
        pod["spec"]["nodeName"] = cycle.node_name
        self._cache.update(entry.key, pod)

    def _report_unschedulable(self, entry: PodInfo, message: str, *, event: bool = True) -> None:
        if entry.message == message:
            return  # said before
        namespace, name = entry.key
        try:
            if self._mark(self._cluster.get(POD, name, namespace), False, "Unschedulable", message) and event:
                record_event(self._cluster, entry.pod, "Warning", "FailedScheduling", message, SOURCE)
        except NotFound:  # deleted: nobody reads the reason
            return
        entry.message = message

    def _mark(self, pod: Obj, scheduled: bool, reason: str, message: str) -> bool:
        existing, before = condition(pod, "PodScheduled"), pod.get("status") or {}
        if existing and existing.get("status") == str(scheduled) and existing.get("message", "") == message:
            return False  # already published, by an earlier life of this scheduler
        status: Obj = {"conditions": [dict(entry) for entry in before.get("conditions") or []]}
        set_condition(status, "PodScheduled", scheduled, reason, message, now())
        patch = {"metadata": {"uid": uid_of(pod)}, "status": status}
        self._cluster.patch(POD, name_of(pod), patch, namespace_of(pod), subresource="status")
        return True
