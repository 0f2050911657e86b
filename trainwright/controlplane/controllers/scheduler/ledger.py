"""What the scheduler knows of the pods: what the bound ones take, and which wait. Kept from change to change, never summed anew."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from trainwright.api import names
from trainwright.api.objects import Obj, annotations_of, controller_of, is_deleting, labels_of, namespace_of, uid_of
from trainwright.api.quantities import parse_quantity
from trainwright.controlplane.controllers.queue import Key
from trainwright.controlplane.controllers.scheduler.room import PODS, add
from trainwright.materialize.pod_requests import Requests, pod_requests

COSCHEDULING_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
VOLCANO_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
_ONE = parse_quantity(1)


@dataclass
class Entry:
    """One pod; of a bound one only what is counted is kept. `told` is the message that it waits with."""

    key: Key
    uid: str
    pod: Obj
    requests: Requests
    bound: bool
    leaving: bool
    priority: int
    job: str
    jobset: Key | None
    group: tuple[str, str, str] | None
    told: str = ""

    @property
    def order(self) -> tuple[int, str, Key]:
        """Higher priority first, then age."""
        return -self.priority, str(self.pod["metadata"].get("creationTimestamp") or ""), self.key


@dataclass
class Ledger:
    """Pods that have ended are not in it; those that are being deleted take their room until they are gone."""

    entries: dict[Key, Entry] = field(default_factory=dict)
    taken: Requests = field(default_factory=dict)
    waiting: dict[Key, Entry] = field(default_factory=dict)
    by_jobset: dict[Key, dict[Key, Entry]] = field(default_factory=dict)
    started: Counter[Key] = field(default_factory=Counter)
    """JobSets with live bound pods, and how many."""
    present: Counter[str] = field(default_factory=Counter)
    """Live pods, bound or not, by the UID of their Job."""
    by_group: dict[tuple[str, str, str], dict[Key, Entry]] = field(default_factory=dict)

    def note(self, key: Key, pod: Obj | None) -> bool:
        """Take in a pod as it is now (None: it is gone). Whether room has become free."""
        before = self.entries.get(key)
        after = _entry(key, pod) if pod is not None else None
        if before is not None:
            self._remove(before)
        if after is not None:
            after.told = before.told if before is not None and before.uid == after.uid else ""
            self._insert(after)
        return before is not None and before.bound and (after is None or not after.bound or after.uid != before.uid)

    def _insert(self, entry: Entry) -> None:
        self.entries[entry.key] = entry
        if entry.bound:
            add(self.taken, entry.requests)
        elif not entry.leaving and not entry.pod["spec"].get("schedulingGates"):
            self.waiting[entry.key] = entry
        self._count(entry, 1)
        if entry.jobset is not None:
            self.by_jobset.setdefault(entry.jobset, {})[entry.key] = entry
        if entry.group is not None:
            self.by_group.setdefault(entry.group, {})[entry.key] = entry

    def _remove(self, entry: Entry) -> None:
        del self.entries[entry.key]
        if entry.bound:
            add(self.taken, entry.requests, -1)
        self.waiting.pop(entry.key, None)
        self._count(entry, -1)
        _leave(self.by_jobset, entry.jobset, entry.key)
        _leave(self.by_group, entry.group, entry.key)

    def _count(self, entry: Entry, one: int) -> None:
        if entry.leaving:
            return
        if entry.job:
            _step(self.present, entry.job, one)
        if entry.jobset is not None and entry.bound:
            _step(self.started, entry.jobset, one)


def group_of(pod: Obj) -> tuple[str, str, str] | None:
    """The PodGroup that a pod says it is of: which scheduler's, namespace, name."""
    labels, annotations = labels_of(pod), annotations_of(pod)
    for kind, keys, found in (("coscheduling", COSCHEDULING_LABELS, labels), ("volcano", VOLCANO_ANNOTATIONS, annotations)):
        for key in keys:
            if found.get(key):
                return kind, namespace_of(pod), found[key]
    return None


def _entry(key: Key, pod: Obj) -> Entry | None:
    """None for a pod that has ended: it takes nothing and waits for nothing."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return None
    spec, owner = pod["spec"], controller_of(pod) or {}
    jobset = labels_of(pod).get(names.JOBSET_NAME_LABEL)
    of_job = owner.get("kind") == "Job"
    bound = bool(spec.get("nodeName"))
    return Entry(
        key,
        uid_of(pod),
        pod if not bound else {"metadata": {"creationTimestamp": pod["metadata"].get("creationTimestamp")}, "spec": {}},
        {**pod_requests(spec), PODS: _ONE},
        bound,
        is_deleting(pod),
        int(spec.get("priority") or 0),
        str(owner.get("uid")) if of_job else "",
        (namespace_of(pod), jobset) if jobset and of_job else None,
        group_of(pod),
    )


def _step(counts: Counter[Any], of: Any, one: int) -> None:
    counts[of] += one
    if not counts[of]:
        del counts[of]


def _leave(index: dict[Any, dict[Key, Entry]], of: Any, key: Key) -> None:
    if of is not None and (members := index.get(of)) is not None:
        members.pop(key, None)
        if not members:
            del index[of]
