"""How a pod ended, or what it is waiting for, from its status. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainwright.api.objects import Obj, name_of
from trainwright.jobs.logs.log_patterns import GPU_MEMORY, LogPattern
from trainwright.jobs.state.pods import index_of, step_of

_IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}
)
_PREEMPTIONS = frozenset({"PreemptionByScheduler", "Preempting", "PreemptionByKubeScheduler"})
_LOSSES = frozenset({"DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet", "NodeLost", "NodeShutdown", "Shutdown"})
_EVICTIONS = frozenset({"Evicted", "EvictionByEvictionAPI", "Terminated"})


@dataclass(frozen=True)
class Waiting:
    """Why a pod is not running; `part` is `scheduling`, `image` or `container`."""

    part: str
    reason: str
    message: str

    def __str__(self) -> str:
        return self.message if self.part == "scheduling" else f"{self.reason}: {self.message}"


@dataclass(frozen=True)
class PodFailure:
    """A failed pod: how it failed, and its last log lines. Numbers are None if the status does not contain them."""

    name: str
    step: str
    index: int
    node: str = ""
    container: str = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    finished: str = ""
    disruption: str = ""
    """Reason of the disruption (preempted, evicted, lost with its node); empty for a pod that ended by itself."""
    restarts: int = 0
    """Sum over its containers."""
    is_previous_run: bool = False
    """Whether the container has restarted since: exit code and log are those of its previous run."""
    other_containers: tuple[PodFailure, ...] = ()
    """Other failed containers of the same pod."""
    memory_limit: str = ""
    log_patterns: tuple[LogPattern, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def signal(self) -> int | None:
        """The signal that ended the container, derived from its exit code."""
        return self.exit_code - 128 if self.exit_code is not None and self.exit_code > 128 else None

    @property
    def out_of_memory(self) -> bool:
        return self.reason == "OOMKilled" or any(pattern.name == GPU_MEMORY for pattern in self.log_patterns)

    @property
    def preempted(self) -> bool:
        return self.disruption in _PREEMPTIONS

    @property
    def evicted(self) -> bool:
        return self.disruption in _EVICTIONS

    @property
    def exceeded_own_limit(self) -> bool:
        """Evicted for exceeding its own requests or limits: another node would not help."""
        return self.evicted and ("exceeds" in self.message or "exceeded" in self.message)

    @property
    def is_consequence(self) -> bool:
        """Whether the pod was ended by SIGTERM, as the others are when one pod fails."""
        return self.exit_code == 128 + signal.SIGTERM and not self.disruption

    def describe(self) -> str:
        """Return the exit code and its meaning as text."""
        if self.exit_code is None:
            return (
                f"was {self._disruption_description()}: {self.message}"
                if self.message
                else f"was {self._disruption_description()}"
            )
        what = f"exited {self.exit_code}"
        if self.reason == "OOMKilled":
            return f"{what} (out of memory{f', limit {self.memory_limit}' if self.memory_limit else ''})"
        if self.disruption:
            what += f" ({self._disruption_description()})"
        elif self.log_patterns:
            what += f" ({'; '.join(pattern.description for pattern in self.log_patterns)})"
        elif self.signal is not None:
            return f"{what} (ended by signal {self.signal})"
        return f"{what}: {self.message}" if self.message else what

    def _disruption_description(self) -> str:
        text = "preempted" if self.preempted else "evicted" if self.evicted else "lost with its node"
        return f"{text}, {self.disruption}"

    def with_log(self, lines: list[str], log_patterns: tuple[LogPattern, ...]) -> PodFailure:
        return replace(self, lines=tuple(lines), log_patterns=log_patterns)

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
            "takenAway": self.disruption,
            "restarts": self.restarts,
            "signs": [pattern.name for pattern in self.log_patterns],
            "log": list(self.lines),
            "alsoFailed": [other.as_dict() for other in self.other_containers],
        }


def pod_failure(pod: Obj) -> PodFailure | None:
    """Return how a pod failed; None for a pod that did not fail, or that recovered."""
    status = pod.get("status") or {}
    disruption, message = _disruption_of(status)
    ended = [
        _container_failure(pod, container, state, disruption, message, is_previous)
        for container, state, is_previous in _failed_containers(status)
    ]
    if not ended and disruption and status.get("phase") != "Succeeded":
        return _container_failure(pod, "", {}, disruption, message)
    return replace(ended[0], other_containers=tuple(ended[1:])) if ended else None


def _container_failure(
    pod: Obj, container: str, state: Obj, disruption: str, message: str, is_previous_run: bool = False
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
        disruption=disruption,
        restarts=sum(int(entry.get("restartCount") or 0) for entry in _statuses(pod.get("status") or {})),
        is_previous_run=is_previous_run,
        memory_limit=_memory_limit(pod, container),
    )


def waiting_of(pod: Obj) -> Waiting | None:
    """Return what a pod is waiting for; None if its status does not say."""
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


def _failed_containers(status: Obj) -> Iterator[tuple[str, Obj, bool]]:
    """Yield `(name, terminated state, whether it is the previous run)` of each container that failed and has not recovered."""
    for container in _statuses(status):
        for is_previous, state in enumerate((container.get("state") or {}, container.get("lastState") or {})):
            ended = state.get("terminated")
            if ended and ended.get("exitCode"):
                yield str(container["name"]), ended, bool(is_previous)
            if ended:
                break


def _disruption_of(status: Obj) -> tuple[str, str]:
    """Return reason and message of a disruption: from the DisruptionTarget condition (Kubernetes 1.26), else the pod's reason."""
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
