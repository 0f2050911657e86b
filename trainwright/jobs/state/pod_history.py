"""The pods of a TrainJob as they were last seen, and for how long each has held its node and GPUs. Pure.

Controllers delete pods that failed or were evicted, and with them exit codes, reasons and logs: a Job at its back-off limit, the
Eviction API, a preemption. What was observed while the job ran is then all that is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from trainwright.api import names
from trainwright.api.conditions import is_true
from trainwright.api.containers import container_statuses, run_ends
from trainwright.api.integers import parse_count
from trainwright.api.objects import Obj, controller_of, copy_of, labels_of, name_of, uid_of
from trainwright.api.times import parse_time
from trainwright.jobs.state.pods import Place, place_of, step_of
from trainwright.materialize.resources import gpu_count

MAX_GONE_PODS = 50
"""Deleted pods that are remembered; pods that ended well are forgotten first."""
_STATUS_FIELDS = ("phase", "reason", "message", "startTime")
_CONDITIONS = ("DisruptionTarget", "PodScheduled", "Ready")
_CONTAINER_FIELDS = ("name", "ready", "restartCount", "state", "lastState")
_LABELS = (names.REPLICATED_JOB_LABEL, names.JOB_INDEX_LABEL, names.COMPLETION_INDEX, names.RESTART_ATTEMPT_LABEL)
_HOUR = 3600.0


@dataclass(frozen=True)
class RunKey:
    """One ended run of a container."""

    container: str
    finished: str


@dataclass
class SeenPod:
    """A pod, reduced to what a report needs."""

    pod: Obj
    is_gone: bool = False
    last_seen: float = 0.0
    """When it was last there, in seconds since the epoch; 0 if that is not known."""
    deletion_requested: str = ""
    """RFC 3339 time of the first deletion request that was seen."""
    failed_runs: dict[RunKey, Obj] = field(default_factory=dict)
    """The `terminated` states of all failed runs of its containers, oldest first."""
    lines: dict[RunKey, tuple[str, ...]] = field(default_factory=dict)
    """The last log lines that were read of each run; the key of a run that had not ended has no time."""
    shown: tuple[str, ...] = ()
    """The last lines of its log that were shown while it ran."""

    @property
    def name(self) -> str:
        return name_of(self.pod)

    @property
    def place(self) -> Place:
        return place_of(self.pod)

    @property
    def restart_attempt(self) -> int:
        """The restarts of the JobSet before this pod was created."""
        return parse_count(labels_of(self.pod).get(names.RESTART_ATTEMPT_LABEL, "")) or 0

    @property
    def created(self) -> str:
        return str(self.pod["metadata"].get("creationTimestamp") or "")

    @property
    def is_disrupted(self) -> bool:
        return is_true(self.pod, "DisruptionTarget")

    @property
    def is_of_interest(self) -> bool:
        """Whether it failed, was disrupted, or was being deleted."""
        return bool(self.failed_runs or self.deletion_requested) or self.is_disrupted or self.pod["status"]["phase"] == "Failed"

    def hours(self, now: float) -> PodHours:
        """Return the hours from its start until it ended or was deleted, or was last seen if it is gone; else until `now`."""
        until = min(now, self.last_seen) if self.is_gone and self.last_seen else now
        return hours_of(self.pod, until, self.deletion_requested)

    def lines_of(self, container: str, finished: str) -> tuple[str, ...]:
        """Return the lines that were read of a run, or of the container before it ended."""
        return self.lines.get(RunKey(container, finished)) or self.lines.get(RunKey(container, ""), ())


class PodHistory:
    """What was observed of the pods of one TrainJob. Not thread-safe."""

    def __init__(self) -> None:
        self._pods: dict[str, SeenPod] = {}
        self.forgotten = PodHours()
        """The hours of pods that are not remembered."""

    def observe(self, pods: Iterable[Obj]) -> None:
        """Record the current pods, as a list returned them; pods that it does not contain are gone."""
        current = {uid_of(pod): pod for pod in pods}
        for uid, pod in current.items():
            seen = self._pods.setdefault(uid, SeenPod(pod))
            seen.pod = reduced(pod)
            seen.is_gone, seen.last_seen = False, time.time()
            requested = deletion_requested(pod)
            seen.deletion_requested = min(filter(None, (seen.deletion_requested, requested)), default="")
            seen.failed_runs.update(_failed_runs(pod))
        for uid in self._pods.keys() - current.keys():
            self._pods[uid].is_gone = True
        gone = [uid for uid, seen in self._pods.items() if seen.is_gone]
        unimportant = [uid for uid in gone if not self._pods[uid].is_of_interest]
        surplus = [uid for uid in gone if uid not in set(unimportant)][:-MAX_GONE_PODS]
        for uid in (*unimportant, *surplus):
            self.forgotten += self._pods.pop(uid).hours(time.time())

    def add_shown(self, shown: Mapping[str, Iterable[str]]) -> None:
        """Record the last lines that were shown of pods, by their UIDs: a log is lost with its pod."""
        for uid, lines in shown.items():
            if uid in self._pods:
                self._pods[uid].shown = tuple(lines)

    def pods(self) -> list[SeenPod]:
        """Return all remembered pods, sorted by step, index and age."""
        return sorted(self._pods.values(), key=lambda seen: (seen.place, seen.created, seen.name))

    def hours(self, now: float) -> PodHours:
        """Return the hours of all training pods so far."""
        return sum((seen.hours(now) for seen in self._pods.values()), self.forgotten)

    def of(self, pod: Obj) -> SeenPod | None:
        """Return what was seen of a pod."""
        return self._pods.get(uid_of(pod))

    def as_dict(self, *, max_pods: int, excerpt: Callable[[Sequence[str]], Sequence[str]]) -> Obj:
        """Return the pods of interest as a JSON object, for another process. `excerpt` bounds the lines of a run."""
        kept = [seen for seen in self.pods() if seen.is_of_interest][:max_pods]
        return {"pods": [_as_dict(seen, excerpt) for seen in kept]}

    @classmethod
    def from_dict(cls, value: Obj) -> PodHistory:
        """Return the history that `as_dict` wrote."""
        history = cls()
        for entry in value.get("pods") or []:
            lines = {RunKey(container, finished): tuple(text) for container, finished, text in entry["lines"]}
            seen = SeenPod(entry["pod"], is_gone=True, deletion_requested=entry["deletionRequested"], lines=lines)
            seen.shown = tuple(entry.get("shown") or ())
            seen.failed_runs = {RunKey(container, state["finishedAt"]): state for container, state in entry["failedRuns"]}
            history._pods[uid_of(seen.pod)] = seen
        return history


def _failed_runs(pod: Obj) -> Iterator[tuple[RunKey, Obj]]:
    for entry in container_statuses(pod):
        for ended in run_ends(entry):
            if ended.get("exitCode"):
                yield RunKey(str(entry["name"]), str(ended.get("finishedAt") or "")), ended


def _as_dict(seen: SeenPod, excerpt: Callable[[Sequence[str]], Sequence[str]]) -> dict[str, Any]:
    return {
        "pod": seen.pod,
        "deletionRequested": seen.deletion_requested,
        "failedRuns": [[key.container, {**state, "finishedAt": key.finished}] for key, state in seen.failed_runs.items()],
        "lines": [[key.container, key.finished, list(excerpt(lines))] for key, lines in seen.lines.items()],
        "shown": [] if any(seen.lines.values()) else list(excerpt(seen.shown)),
    }


def reduced(pod: Obj) -> Obj:
    """Return a copy of a pod with only the fields that say how it ended."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    kept = {
        key: metadata[key] for key in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp") if key in metadata
    }
    kept["labels"] = {key: value for key, value in labels_of(pod).items() if key in _LABELS}
    if owners := [entry for entry in metadata.get("ownerReferences") or [] if entry.get("controller")]:
        kept["ownerReferences"] = owners
    containers = [{"name": c["name"], "resources": c.get("resources") or {}} for c in spec.get("containers") or []]
    states = {
        kind: [{key: entry[key] for key in _CONTAINER_FIELDS if key in entry} for entry in status.get(kind) or []]
        for kind in ("initContainerStatuses", "containerStatuses")
    }
    reduced_status = {
        **{key: status.get(key, "") for key in _STATUS_FIELDS},
        "conditions": [entry for entry in status.get("conditions") or [] if entry.get("type") in _CONDITIONS],
        **states,
    }
    return copy_of(
        {"metadata": kept, "spec": {"nodeName": spec.get("nodeName", ""), "containers": containers}, "status": reduced_status}
    )


def owner_of(pod: Obj) -> str:
    """Return the UID of the Job that controls a pod; empty if none does."""
    return str((controller_of(pod) or {}).get("uid") or "")


def deletion_requested(pod: Obj) -> str:
    """Return when the deletion of a pod was requested: its deletionTimestamp is that time plus the grace period. "" if it was not."""
    metadata = pod["metadata"]
    if not metadata.get("deletionTimestamp"):
        return ""
    grace = int(metadata.get("deletionGracePeriodSeconds") or 0)
    moment = datetime.fromisoformat(metadata["deletionTimestamp"]) - timedelta(seconds=grace)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class PodHours:
    """Hours for which nodes, and GPUs on them, were allocated."""

    nodes: float = 0.0
    gpus: float = 0.0

    def __add__(self, other: PodHours) -> PodHours:
        return PodHours(self.nodes + other.nodes, self.gpus + other.gpus)


def hours_of(pod: Obj, until: float, deletion_requested: str = "") -> PodHours:
    """Return the hours of a training pod, from its start to the end of its last container, its deletion, or `until`.

    Initializers count nothing: they need no GPU, and run before the training.
    """
    started = str((pod.get("status") or {}).get("startTime") or "")
    if not started or step_of(pod) in names.INITIALIZERS:
        return PodHours()
    begin = parse_time(started).timestamp()
    hours = max(0.0, _end(pod, begin, until, deletion_requested) - begin) / _HOUR
    gpus = sum(gpu_count(container.get("resources") or {}) for container in pod["spec"].get("containers") or [])
    return PodHours(hours, hours * gpus)


def _end(pod: Obj, begin: float, until: float, deletion_requested: str) -> float:
    """Return when the pod released its resources: in a pod that has ended, containers may never have started."""
    status = pod["status"]
    ended = [parse_time(text).timestamp() for entry in container_statuses(pod) if (text := _ended(entry))]
    if status.get("phase") in ("Succeeded", "Failed") or all(map(_ended, status.get("containerStatuses") or [{}])):
        return max(ended, default=begin)
    deleted = deletion_requested or pod["metadata"].get("deletionTimestamp")
    return min(until, parse_time(str(deleted)).timestamp()) if deleted else until


def _ended(container: Obj) -> str:
    return str(((container.get("state") or {}).get("terminated") or {}).get("finishedAt") or "")
