"""How a pod ended, or what it waits for, as its status tells. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainwright.api.objects import Obj, name_of
from trainwright.jobs.log_signs import GPU_MEMORY, Sign
from trainwright.jobs.pods import index_of, step_of

_IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}
)
_PREEMPTIONS = frozenset({"PreemptionByScheduler", "Preempting", "PreemptionByKubeScheduler"})
_LOSSES = frozenset({"DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet", "NodeLost", "NodeShutdown", "Shutdown"})
_EVICTIONS = frozenset({"Evicted", "EvictionByEvictionAPI", "Terminated"})


@dataclass(frozen=True)
class Waiting:
    """What keeps a pod from running: `part` is `scheduling`, `image` or `container`."""

    part: str
    reason: str
    message: str

    def __str__(self) -> str:
        return self.message if self.part == "scheduling" else f"{self.reason}: {self.message}"


@dataclass(frozen=True)
class PodFailure:
    """One pod that failed: which, how, and its last lines. Numbers are None where the cluster does not tell them."""

    name: str
    step: str
    index: int
    node: str = ""
    container: str = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    finished: str = ""
    taken: str = ""
    """Why it was taken away: preempted, evicted, lost with its node; empty for a pod that ended by itself."""
    restarts: int = 0
    """Of its containers."""
    is_earlier_run: bool = False
    """Whether the container has begun anew since: how it ended, and what it printed, is that of the run before."""
    also: tuple[PodFailure, ...] = ()
    """Further containers of the same pod that ended with an error."""
    memory_limit: str = ""
    signs: tuple[Sign, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def signal(self) -> int | None:
        """The signal that ended it, as its exit code says."""
        return self.exit_code - 128 if self.exit_code is not None and self.exit_code > 128 else None

    @property
    def out_of_memory(self) -> bool:
        return self.reason == "OOMKilled" or any(sign.name == GPU_MEMORY for sign in self.signs)

    @property
    def preempted(self) -> bool:
        return self.taken in _PREEMPTIONS

    @property
    def evicted(self) -> bool:
        return self.taken in _EVICTIONS

    @property
    def over_its_limit(self) -> bool:
        """Evicted for using more than itself had asked for: another node would not help."""
        return self.evicted and ("exceeds" in self.message or "exceeded" in self.message)

    @property
    def is_consequence(self) -> bool:
        """When one pod fails the others get SIGTERM, or end soon after it."""
        return self.exit_code == 128 + signal.SIGTERM and not self.taken

    def how(self) -> str:
        """In words: the exit code and what it means."""
        if self.exit_code is None:
            return f"was {self._taken_words()}: {self.message}" if self.message else f"was {self._taken_words()}"
        what = f"exited {self.exit_code}"
        if self.reason == "OOMKilled":
            return f"{what} (out of memory{f', limit {self.memory_limit}' if self.memory_limit else ''})"
        if self.taken:
            what += f" ({self._taken_words()})"
        elif self.signs:
            what += f" ({'; '.join(sign.words for sign in self.signs)})"
        elif self.signal is not None:
            return f"{what} (ended by signal {self.signal})"
        return f"{what}: {self.message}" if self.message else what

    def _taken_words(self) -> str:
        words = "preempted" if self.preempted else "evicted" if self.evicted else "lost with its node"
        return f"{words}, {self.taken}"

    def with_log(self, lines: list[str], signs: tuple[Sign, ...]) -> PodFailure:
        return replace(self, lines=tuple(lines), signs=signs)

    def as_dict(self) -> Obj:
        return {
            "name": self.name,
            "step": self.step,
            "index": self.index,
            "node": self.node,
            "container": self.container,
            "exitCode": self.exit_code,
            "signal": self.signal,
            "reason": self.reason,
            "message": self.message,
            "finishedAt": self.finished,
            "outOfMemory": self.out_of_memory,
            "preempted": self.preempted,
            "evicted": self.evicted,
            "takenAway": self.taken,
            "restarts": self.restarts,
            "signs": [sign.name for sign in self.signs],
            "log": list(self.lines),
            "alsoFailed": [other.as_dict() for other in self.also],
        }


def pod_failure(pod: Obj) -> PodFailure | None:
    """How a pod failed; None for one that did not, or that got over it."""
    status = pod.get("status") or {}
    taken, message = _taken_away(status)
    ended = [
        _container_failure(pod, container, state, taken, message, is_earlier)
        for container, state, is_earlier in _ended_badly(status)
    ]
    if not ended and taken and status.get("phase") != "Succeeded":
        return _container_failure(pod, "", {}, taken, message)
    return replace(ended[0], also=tuple(ended[1:])) if ended else None


def _container_failure(
    pod: Obj, container: str, state: Obj, taken: str, message: str, is_earlier_run: bool = False
) -> PodFailure:
    return PodFailure(
        name=name_of(pod),
        step=step_of(pod),
        index=index_of(pod),
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        container=container,
        exit_code=state.get("exitCode"),
        reason=str(state.get("reason") or ""),
        message=str(state.get("message") or message),
        finished=str(state.get("finishedAt") or ""),
        taken=taken,
        restarts=sum(int(entry.get("restartCount") or 0) for entry in _statuses(pod.get("status") or {})),
        is_earlier_run=is_earlier_run,
        memory_limit=_memory_limit(pod, container),
    )


def waiting_of(pod: Obj) -> Waiting | None:
    """What a pod waits for, where its status says so."""
    status = pod.get("status") or {}
    for entry in status.get("conditions") or []:
        if entry.get("type") == "PodScheduled" and entry.get("status") == "False":
            reason = str(entry.get("reason") or "")
            return Waiting("scheduling", reason, str(entry.get("message") or reason))
    for container in _statuses(status):
        waiting = (container.get("state") or {}).get("waiting")
        if waiting and waiting.get("message"):
            reason = str(waiting.get("reason") or "")
            return Waiting("image" if reason in _IMAGE_REASONS else "container", reason, str(waiting["message"]))
    return None


def _statuses(status: Obj) -> Iterator[Obj]:
    yield from status.get("initContainerStatuses") or []
    yield from status.get("containerStatuses") or []


def _ended_badly(status: Obj) -> Iterator[tuple[str, Obj, bool]]:
    """Each container that ended with an error, how, and whether that was its previous run; none that got over it."""
    for container in _statuses(status):
        for is_earlier, state in enumerate((container.get("state") or {}, container.get("lastState") or {})):
            ended = state.get("terminated")
            if ended and ended.get("exitCode"):
                yield str(container["name"]), ended, bool(is_earlier)
            if ended:
                break


def _taken_away(status: Obj) -> tuple[str, str]:
    """Reason and message of a disruption: the condition of Kubernetes 1.26 and later, else the pod's own reason."""
    for entry in status.get("conditions") or []:
        if entry.get("type") == "DisruptionTarget" and entry.get("status") == "True":
            return str(entry.get("reason") or "Evicted"), str(entry.get("message") or status.get("message") or "")
    reason = str(status.get("reason") or "")
    if reason in _PREEMPTIONS | _LOSSES | _EVICTIONS:
        return reason, str(status.get("message") or "")
    return "", ""


def _memory_limit(pod: Obj, container: str) -> str:
    for entry in (pod.get("spec") or {}).get("containers") or []:
        if entry.get("name") == container:
            return str(((entry.get("resources") or {}).get("limits") or {}).get("memory", ""))
    return ""
