"""The scheduler's cache: requests of bound pods, and pending pods, updated incrementally on every change."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from trainwright.api import names
from trainwright.api.objects import Obj, controller_of, is_deleting, labels_of, namespace_of, uid_of
from trainwright.api.quantities import Requests, parse_quantity, pod_requests
from trainwright.controlplane.controllers.queue import Key
from trainwright.controlplane.controllers.scheduler.gangs import PODS, add

_ONE = parse_quantity(1)


@dataclass
class PodInfo:
    """A pod; of a bound one only the counted fields are kept. `message` is the last reason why it is unschedulable."""

    key: Key
    uid: str
    pod: Obj
    requests: Requests
    is_bound: bool
    is_terminating: bool
    priority: int
    job: str
    jobset: Key | None
    message: str = ""

    @property
    def order(self) -> tuple[int, str, Key]:
        """Higher priority first, then age."""
        return -self.priority, str(self.pod["metadata"].get("creationTimestamp") or ""), self.key


@dataclass
class SchedulerCache:
    """Contains pods that have not finished. Terminating pods use resources until they are deleted."""

    entries: dict[Key, PodInfo] = field(default_factory=dict)
    requested: Requests = field(default_factory=dict)
    pending: dict[Key, PodInfo] = field(default_factory=dict)
    by_jobset: dict[Key, dict[Key, PodInfo]] = field(default_factory=dict)
    bound_pods: Counter[Key] = field(default_factory=Counter)
    """Number of bound, non-terminating pods by JobSet."""
    live_pods: Counter[str] = field(default_factory=Counter)
    """Number of non-terminating pods, bound or not, by the UID of their Job."""

    def update(self, key: Key, pod: Obj | None) -> bool:
        """Update a pod (None: deleted). Returns whether resources have been freed."""
        before = self.entries.get(key)
        after = _pod_info(key, pod) if pod is not None else None
        if before is not None:
            self._remove(before)
        if after is not None:
            after.message = before.message if before is not None and before.uid == after.uid else ""
            self._insert(after)
        return before is not None and before.is_bound and (after is None or not after.is_bound or after.uid != before.uid)

    def _insert(self, entry: PodInfo) -> None:
        self.entries[entry.key] = entry
        if entry.is_bound:
            add(self.requested, entry.requests)
        elif not entry.is_terminating and not entry.pod["spec"].get("schedulingGates"):
            self.pending[entry.key] = entry
        self._count(entry, 1)
        if entry.jobset is not None:
            self.by_jobset.setdefault(entry.jobset, {})[entry.key] = entry

    def _remove(self, entry: PodInfo) -> None:
        del self.entries[entry.key]
        if entry.is_bound:
            add(self.requested, entry.requests, -1)
        self.pending.pop(entry.key, None)
        self._count(entry, -1)
        if entry.jobset is not None:
            members = self.by_jobset[entry.jobset]
            del members[entry.key]
            if not members:
                del self.by_jobset[entry.jobset]

    def _count(self, entry: PodInfo, one: int) -> None:
        if entry.is_terminating:
            return
        if entry.job:
            _increment(self.live_pods, entry.job, one)
        if entry.jobset is not None and entry.is_bound:
            _increment(self.bound_pods, entry.jobset, one)


def _pod_info(key: Key, pod: Obj) -> PodInfo | None:
    """Return the info of a pod, or None for a finished one, which uses no resources."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return None
    spec, owner = pod["spec"], controller_of(pod) or {}
    jobset = labels_of(pod).get(names.JOBSET_NAME_LABEL)
    of_job = owner.get("kind") == "Job"
    is_bound = bool(spec.get("nodeName"))
    return PodInfo(
        key,
        uid_of(pod),
        pod if not is_bound else {"metadata": {"creationTimestamp": pod["metadata"].get("creationTimestamp")}, "spec": {}},
        {**pod_requests(spec), PODS: _ONE},
        is_bound,
        is_deleting(pod),
        int(spec.get("priority") or 0),
        str(owner.get("uid")) if of_job else "",
        (namespace_of(pod), jobset) if jobset and of_job else None,
    )


def _increment(counts: Counter[Any], of: Any, one: int) -> None:
    counts[of] += one
    if not counts[of]:
        del counts[of]
