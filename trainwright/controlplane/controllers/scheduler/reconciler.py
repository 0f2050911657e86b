"""One pass of the scheduler: take in what changed, bind the pods that fit, tell the others why they wait.

There is one key: whatever happens, the next pass looks at the pods that wait, with running totals of those that do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from trainwright.api import names
from trainwright.api.conditions import condition, set_condition
from trainwright.api.errors import Conflict, NotFound
from trainwright.api.kinds import CLAIM, COSCHEDULING_GROUP, JOB, JOBSET, NODE, POD, VOLCANO_GROUP, Kind
from trainwright.api.merge_patch import difference
from trainwright.api.objects import Obj, annotations_of, controller_of, is_deleting, name_of, namespace_of, uid_of
from trainwright.api.times import now
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.queue import Key
from trainwright.controlplane.controllers.scheduler import pod_groups, too_large, words
from trainwright.controlplane.controllers.scheduler.gangs import Share, missing, shares
from trainwright.controlplane.controllers.scheduler.ledger import Entry, Ledger, group_of
from trainwright.controlplane.controllers.scheduler.node_filters import obstacle
from trainwright.controlplane.controllers.scheduler.room import Room, add
from trainwright.materialize.pod_requests import Requests

PASS: Key = ("", "pass")
SOURCE = "default-scheduler"
_GROUPS = {"coscheduling": COSCHEDULING_GROUP, "volcano": VOLCANO_GROUP}
GroupKey = tuple[str, str, str]


class BindingCluster(Cluster, Protocol):
    """A cluster that gives pods their nodes."""

    def bind(self, name: str, namespace: str, node: str) -> None: ...


def scheduler(cluster: BindingCluster) -> Controller:
    made = Scheduler(cluster)
    return Controller("scheduler", made.reconcile, made.watches())


class Scheduler:
    """Not for two threads at a time."""

    def __init__(self, cluster: BindingCluster):
        self._cluster, self._ledger = cluster, Ledger()
        self._stale_pods: set[Key] = set()
        self._stale_jobsets: set[Key] = set()
        self._stale_groups: set[GroupKey] = set()
        self._wanted: dict[Key, list[Share]] = {}
        self._found: dict[GroupKey, Obj] = {}
        self._primed, self._grown = False, True

    def watches(self) -> dict[Kind, Callable[[Obj], Iterable[Key]]]:
        return {
            POD: self._saw_pod,
            NODE: self._saw_room,
            CLAIM: self._saw_room,
            JOBSET: lambda jobset: self._saw_jobset((namespace_of(jobset), name_of(jobset))),
            JOB: self._saw_job,
            COSCHEDULING_GROUP: lambda group: self._saw_group(("coscheduling", namespace_of(group), name_of(group))),
            VOLCANO_GROUP: lambda group: self._saw_group(("volcano", namespace_of(group), name_of(group))),
        }

    def reconcile(self, _key: Key) -> float | None:
        self._take_in()
        node = self._node()
        if node is None:
            for entry in list(self._ledger.waiting.values()):
                self._tell(entry, words.NO_NODES)
        else:
            self._refresh(node)
            self._place(_Pass(self._cluster, node, Room(node, self._ledger.taken)))
        self._report_groups()
        self._grown = False
        return None

    def _saw_pod(self, pod: Obj) -> list[Key]:
        self._stale_pods.add((namespace_of(pod), name_of(pod)))
        if (group := group_of(pod)) is not None:
            self._stale_groups.add(group)
        return [PASS]

    def _saw_room(self, seen: Obj) -> list[Key]:
        """Nothing but the end of a lease or a heartbeat would be no reason; neither is written here."""
        self._grown = True
        if seen.get("kind") == NODE.kind:
            self._stale_jobsets.update(self._ledger.by_jobset)
        return [PASS]

    def _saw_jobset(self, key: Key) -> list[Key]:
        self._stale_jobsets.add(key)
        return [PASS] if key in self._ledger.by_jobset else []

    def _saw_job(self, job: Obj) -> list[Key]:
        owner = controller_of(job) or {}
        return self._saw_jobset((namespace_of(job), owner["name"])) if owner.get("kind") == "JobSet" else []

    def _saw_group(self, group: GroupKey) -> list[Key]:
        self._stale_groups.add(group)
        self._grown = True
        return [PASS]

    def _take_in(self) -> None:
        if not self._primed:
            for found in self._cluster.list(POD).items:
                self._take_in_pod((namespace_of(found), name_of(found)), found)
            self._primed = True
        for key in list(self._stale_pods):
            self._take_in_pod(key, self._pod(key))
            self._stale_pods.discard(key)

    def _pod(self, key: Key) -> Obj | None:
        try:
            return self._cluster.get(POD, key[1], key[0])
        except NotFound:
            return None

    def _take_in_pod(self, key: Key, pod: Obj | None) -> None:
        self._grown |= self._ledger.note(key, pod)
        entry = self._ledger.entries.get(key)
        if entry is None or pod is None:
            return
        if entry.jobset is not None and entry.jobset not in self._wanted:
            self._stale_jobsets.add(entry.jobset)
        if entry.bound and not entry.leaving:  # bound by a predecessor that did not come to say so, or by its author
            self._mark(pod, True, "", "")

    def _node(self) -> Obj | None:
        """The node that is this cluster; others may stand there as objects only."""
        nodes = self._cluster.list(NODE).items
        whole = [node for node in nodes if names.WHOLE_CLUSTER_ANNOTATION in annotations_of(node)]
        return next(iter([*whole, *nodes]), None)

    def _refresh(self, node: Obj) -> None:
        """Look again at the JobSets and PodGroups that changed, as far as their pods concern us."""
        for key in list(self._stale_jobsets):
            before = self._wanted.pop(key, None)
            if key in self._ledger.by_jobset:
                self._wanted[key] = self._shares(key, node)
            self._grown |= before != self._wanted.get(key)
            self._stale_jobsets.discard(key)
        for group in self._stale_groups:
            self._found.pop(group, None)
            if group in self._ledger.by_group and (obj := self._group(group)) is not None:
                self._found[group] = obj

    def _shares(self, key: Key, node: Obj) -> list[Share]:
        namespace, name = key
        try:
            jobset = self._cluster.get(JOBSET, name, namespace)
        except NotFound:
            return []
        too_large.tell(self._cluster, jobset, node)
        selector = f"{names.JOBSET_NAME_LABEL}={name}"
        return shares(jobset, self._cluster.list(JOB, namespace, label_selector=selector).items)

    def _group(self, group: GroupKey) -> Obj | None:
        try:
            return self._cluster.get(_GROUPS[group[0]], group[2], group[1])
        except NotFound:
            return None

    def _place(self, turn: _Pass) -> None:
        """What has begun comes first and keeps the room that it will still need; then by priority and age."""
        if not self._ledger.waiting:
            return
        units = self._units()
        for jobset in list(self._ledger.started):
            for entry in units.pop(("jobset", jobset), []):
                self._place_alone(turn, entry)
            turn.room.take(self._missing(jobset))
        for (kind, of), entries in sorted(units.items(), key=lambda unit: unit[1][0].order):
            if not self._grown and all(entry.told for entry in entries):
                continue
            if kind == "jobset":
                self._place_together(turn, entries, self._missing(of), f"JobSet {of[0]}/{of[1]}")
            elif kind == "group":
                self._place_group(turn, entries, of)
            else:
                self._place_alone(turn, entries[0])

    def _units(self) -> dict[tuple[str, tuple[str, ...]], list[Entry]]:
        """Pods that wait, with those that they have to be placed with, in their order."""
        units: dict[tuple[str, tuple[str, ...]], list[Entry]] = {}
        for entry in sorted(self._ledger.waiting.values(), key=lambda entry: entry.order):
            of_group = entry.group is not None and (
                entry.jobset is None or (entry.group in self._found and pod_groups.decides(self._found[entry.group]))
            )
            if of_group and entry.group is not None:
                unit: tuple[str, tuple[str, ...]] = ("group", entry.group)
            elif entry.jobset is not None:
                unit = ("jobset", entry.jobset)
            else:
                unit = ("pod", entry.key)
            units.setdefault(unit, []).append(entry)
        return units

    def _missing(self, jobset: tuple[str, ...]) -> Requests:
        return missing(self._wanted.get((jobset[0], jobset[1]), []), self._ledger.present)

    def _place_alone(self, turn: _Pass, entry: Entry) -> None:
        why = turn.reason(entry)
        if why:
            self._tell(entry, why)
        else:
            self._bind(turn, entry)

    def _place_together(self, turn: _Pass, entries: list[Entry], also: Requests, gang: str) -> None:
        """All of these and room for `also`, or none."""
        total: Requests = dict(also)
        for entry in entries:
            add(total, entry.requests)
        lacking = turn.room.lacking(total)
        reasons = [turn.misplaced(entry) for entry in entries]
        if not lacking and not any(reasons):
            for entry in entries:
                self._bind(turn, entry)
            turn.room.take(also)
            return
        for_ever = bool(turn.room.exceeded(total))
        first = next(filter(None, reasons), "")
        for entry, own in zip(entries, reasons, strict=True):
            if own or first:
                why = own or words.together(first, gang)
            else:
                why = words.together(words.insufficient(lacking, for_ever=for_ever, pod_spec=entry.pod["spec"]), gang)
            self._tell(entry, why, event=entry is entries[0])

    def _place_group(self, turn: _Pass, entries: list[Entry], key: tuple[str, ...]) -> None:
        group_key: GroupKey = (key[0], key[1], key[2])
        group = self._found.get(group_key)
        if group is None:
            for entry in entries:
                self._tell(entry, words.unbound(f'PodGroup "{key[2]}" not found'))
            return
        members = [entry for entry in self._ledger.by_group[group_key].values() if not entry.leaving]
        bound = [entry for entry in members if entry.bound]
        needed = max(pod_groups.least_members(group) - len(bound), 0)
        if needed > len(entries):
            for entry in entries:
                self._tell(entry, pod_groups.too_few(entry.key[1], len(members), group), event=entry is entries[0])
            return
        if needed:
            self._place_together(turn, entries[:needed], self._reserve(group, [*bound, *entries[:needed]]), f"PodGroup {key[2]}")
            if any(entry.key in self._ledger.waiting for entry in entries[:needed]):
                for entry in entries[needed:]:
                    self._tell(entry, entries[0].told, event=False)
                return
        for entry in entries[needed:]:
            self._place_alone(turn, entry)

    def _reserve(self, group: Obj, members: list[Entry]) -> Requests:
        """What `minResources` asks for beyond these."""
        left = dict(pod_groups.least(group))
        for entry in members:
            add(left, {name: amount for name, amount in entry.requests.items() if name in left}, -1)
        return {name: amount for name, amount in left.items() if amount.value > 0}

    def _bind(self, turn: _Pass, entry: Entry) -> None:
        namespace, name = entry.key
        self._stale_pods.add(entry.key)  # looked at again in any case: what is written here may come to nothing
        try:
            pod = self._cluster.get(POD, name, namespace)
            if uid_of(pod) != entry.uid or is_deleting(pod):
                return
            self._cluster.bind(name, namespace, turn.node_name)
        except (NotFound, Conflict):  # gone, or bound by somebody else: the next pass knows
            return
        turn.room.take(entry.requests)
        pod["spec"]["nodeName"] = turn.node_name
        self._ledger.note(entry.key, pod)

    def _tell(self, entry: Entry, message: str, *, event: bool = True) -> None:
        if entry.told == message:
            return
        namespace, name = entry.key
        try:
            if self._mark(self._cluster.get(POD, name, namespace), False, "Unschedulable", message) and event:
                record_event(self._cluster, entry.pod, "Warning", "FailedScheduling", message, SOURCE)
        except NotFound:
            return
        entry.told = message

    def _mark(self, pod: Obj, scheduled: bool, reason: str, message: str) -> bool:
        existing = condition(pod, "PodScheduled")
        if existing and existing.get("status") == str(scheduled) and existing.get("message", "") == message:
            return False
        status = {"conditions": [dict(entry) for entry in (pod.get("status") or {}).get("conditions") or []]}
        set_condition(status, "PodScheduled", scheduled, reason, message, now())
        patch = {"metadata": {"uid": uid_of(pod)}, "status": status}
        self._cluster.patch(POD, name_of(pod), patch, namespace_of(pod), subresource="status")
        return True

    def _report_groups(self) -> None:
        """Write the status of the PodGroups whose pods changed."""
        for key in list(self._stale_groups):
            group = self._group(key)
            if group is not None:
                waiting = [entry for entry in self._ledger.by_group.get(key, {}).values() if entry.key in self._ledger.waiting]
                why = waiting[0].told if waiting else ""
                status = pod_groups.status_after(key[0], group, self._members(key, group), why, now())
                if change := difference(group.get("status") or {}, status):
                    self._cluster.patch(_GROUPS[key[0]], key[2], {"status": change}, key[1], subresource="status")
            self._stale_groups.discard(key)

    def _members(self, key: GroupKey, group: Obj) -> list[Obj]:
        """Of a TrainJob's group they are its JobSet's pods, which are found by their label."""
        selector = "" if pod_groups.decides(group) else f"{names.JOBSET_NAME_LABEL}={key[2]}"
        pods = self._cluster.list(POD, key[1], label_selector=selector).items
        return [pod for pod in pods if group_of(pod) == key]


class _Pass:
    """The node as this pass sees it."""

    def __init__(self, cluster: Cluster, node: Obj, room: Room):
        self._cluster, self._node, self.room, self.node_name = cluster, node, room, name_of(node)
        self._claims: dict[Key, bool] = {}

    def reason(self, entry: Entry) -> str:
        """Why this pod cannot be bound; empty when it can."""
        if why := self.misplaced(entry):
            return why
        lacking = self.room.lacking(entry.requests)
        if not lacking:
            return ""
        for_ever = bool(self.room.exceeded(entry.requests))
        return words.insufficient(lacking, for_ever=for_ever, pod_spec=entry.pod["spec"])

    def misplaced(self, entry: Entry) -> str:
        """Why it cannot, however much room there is."""
        spec = entry.pod["spec"]
        for volume in spec.get("volumes") or []:
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if claim is not None and not self._has_claim((entry.key[0], claim)):
                return words.unbound(f'persistentvolumeclaim "{claim}" not found')
        why = obstacle(spec, self._node)
        return words.wrong_node(why, spec) if why else ""

    def _has_claim(self, key: Key) -> bool:
        if key not in self._claims:
            try:
                self._cluster.get(CLAIM, key[1], key[0])
                self._claims[key] = True
            except NotFound:
                self._claims[key] = False
        return self._claims[key]
