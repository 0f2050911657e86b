"""How a pod ended, or what it is waiting for, from its status. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from trainwright.api.conditions import condition
from trainwright.api.containers import container_statuses, restart_count, run_ends
from trainwright.api.objects import Obj, name_of
from trainwright.jobs.logs.log_excerpt import GPU_MEMORY, LogPattern, last_word, patterns_in, shortened
from trainwright.jobs.state.pod_history import SeenPod, deletion_requested, owner_of
from trainwright.jobs.state.pods import index_of, step_of
from trainwright.runtimes.launch import CANNOT_RUN, CANNOT_RUN_MARK
from trainwright.text.foreign_texts import one_line

STOPPED_CODES = (128 + signal.SIGTERM, 128 + signal.SIGKILL)
"""Exit codes of a container that was stopped; 137 if it ignored SIGTERM, as a shell that is PID 1 does."""
_IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}
)
_PREEMPTIONS = frozenset({"PreemptionByScheduler", "Preempting", "PreemptionByKubeScheduler"})
_LOSSES = frozenset({"DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet", "NodeLost", "NodeShutdown", "Shutdown"})
_EVICTIONS = frozenset({"Evicted", "EvictionByEvictionAPI", "Terminated"})


@dataclass(frozen=True)
class PendingPod:
    """Why a pod is not running; `part` is `scheduling`, `image` or `container`."""

    part: str
    reason: str
    message: str

    def __str__(self) -> str:
        return self.message if self.part == "scheduling" else f"{self.reason}: {self.message}"


@dataclass(frozen=True)
class Disruption:
    """Why a pod was taken from its node, since when, empty if it was not."""

    reason: str = ""
    message: str = ""
    since: str = ""


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
    disrupted: str = ""
    """RFC 3339 time of the disruption."""
    deletion_requested: str = ""
    """RFC 3339 time at which the deletion of the pod was requested; empty for a pod that is not being deleted."""
    owner: str = ""
    """UID of its Job."""
    deleted_by_others: bool = False
    """Whether it is known that no controller requested the deletion."""
    failed_probe: str = ""
    """Which probe made the kubelet stop the container, and why it failed, such as `liveness probe failed: timeout`."""
    is_consequence: bool = False
    """Whether controllers ended the pod because the job was failing already."""
    is_gone: bool = False
    """Whether the pod no longer exists: this is what was last seen of it."""
    restarts: int = 0
    """Sum over its containers."""
    earlier_runs: tuple[str, ...] = ()
    """How earlier runs of the container failed, oldest first, such as `exited 7`."""
    is_previous_run: bool = False
    """Whether the container has restarted since: exit code and log are those of its previous run."""
    runs_again: bool = False
    """Whether it was running again when it was last seen."""
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
    def cannot_run(self) -> bool:
        """Whether the launcher has found that the program can never run; a program may end with the same code."""
        return self.exit_code == CANNOT_RUN and self.message.startswith(CANNOT_RUN_MARK)

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
    def is_own_failure(self) -> bool:
        """Whether the container ended by itself, and not because its pod was deleted."""
        ended = {"finishedAt": self.finished, "exitCode": self.exit_code}
        return self.exit_code is not None and not was_stopped(ended, self.deletion_requested)

    @property
    def began(self) -> str:
        """When the failure began: the end of the container, or the disruption or deletion that ended it, if that came first."""
        return min(filter(None, (self.finished, self.disrupted, self.deletion_requested)), default="")

    def describe(self) -> str:
        """Return the exit code and its meaning as text."""
        text = self._how_it_ended()
        if self.earlier_runs:
            runs = ", ".join(self.earlier_runs)
            number = len(self.earlier_runs)
            text += f"; it was restarted {number} time{'s' if number > 1 else ''} before ({runs})"
        return text

    def _how_it_ended(self) -> str:
        if self.exit_code is None:
            if self.disruption:
                text = f"was {self._disruption_description()}"
                return f"{text}: {self.message}" if self.message else text
            return self._deletion_description()
        what = f"exited {self.exit_code}"
        if self.reason == "OOMKilled":
            return f"{what} (out of memory{f', limit {self.memory_limit}' if self.memory_limit else ''})"
        if self.failed_probe:
            return f"{what} (stopped by its node: {self.failed_probe})"
        if self.disruption:
            what += f" ({self._disruption_description()})"
        elif self.is_consequence:
            return f"{what} (stopped by its Job)"
        elif self.deletion_requested and self.began == self.deletion_requested and not self.is_own_failure:
            what += f" ({self._deletion_description()})"
        elif self.log_patterns:
            what += f" ({'; '.join(pattern.description for pattern in self.log_patterns)})"
        elif self.signal is not None:
            return f"{what} (ended by signal {self.signal})"
        return f"{what}: {self.message}" if self.message else what

    def _deletion_description(self) -> str:
        if self.is_consequence:
            return "was stopped by its Job"
        if not self.deletion_requested:
            return "vanished"
        return f"was deleted at {self.deletion_requested}{', not by its Job' if self.deleted_by_others else ''}"

    def _disruption_description(self) -> str:
        if self.preempted or self.evicted:
            text = "preempted" if self.preempted else "evicted"
        else:
            text = "lost with its node" if self.disruption in _LOSSES else "disrupted"
        return f"{text}, {self.disruption}"

    def with_log(self, lines: list[str], log_patterns: tuple[LogPattern, ...]) -> PodFailure:
        return replace(self, lines=tuple(lines), log_patterns=log_patterns)

    def with_last_word(self, lines: Sequence[str]) -> PodFailure:
        """Add the error with which the container ended to a failure that is told in one line, and what its log shows."""
        found = self.with_launcher_message(lines)
        if not self.is_own_failure:  # its last line says nothing about why it was stopped
            return found
        return replace(found, message=found.message or one_line(shortened(last_word(lines))), log_patterns=patterns_in(lines))

    def with_launcher_message(self, lines: Iterable[str]) -> PodFailure:
        """Add what the launcher says in the log, where a container has no termination message, as without isolation."""
        if self.exit_code != CANNOT_RUN or self.message:  # another program, or known already
            return self
        return replace(self, message=one_line(next((line for line in lines if line.startswith(CANNOT_RUN_MARK)), "")))

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
            "deletedAt": self.deletion_requested,
            "consequence": self.is_consequence,
            "gone": self.is_gone,
            "restarts": self.restarts,
            "earlierRuns": list(self.earlier_runs),
            "signs": [pattern.name for pattern in self.log_patterns],
            "log": list(self.lines),
            "alsoFailed": [other.as_dict() for other in self.other_containers],
        }


def pod_failure(pod: Obj, seen: SeenPod | None = None) -> PodFailure | None:
    """Return how a pod failed; None for a pod that did not fail, or that recovered. `seen` adds what was observed before."""
    status = pod.get("status") or {}
    disruption = _disruption_of(pod)
    ended = [_container_failure(pod, disruption, run) for run in _failed_containers(status)]
    if ended:
        failure = replace(ended[0], other_containers=tuple(ended[1:]))
    elif (disruption.reason or deletion_requested(pod)) and status.get("phase") != "Succeeded":
        failure = _container_failure(pod, disruption, _FailedRun())
    else:
        return None
    return failure if seen is None else _with_observations(failure, seen)


def _with_observations(failure: PodFailure, seen: SeenPod) -> PodFailure:
    """Add what is no longer in the status. The run that was stopped with the pod gives way to the last one that failed by itself."""
    failure = replace(failure, deletion_requested=seen.deletion_requested, is_gone=seen.is_gone)
    runs = [(key, state) for key, state in seen.failed_runs.items() if key.container == failure.container]
    own = [(key, state) for key, state in runs if not was_stopped(state, seen.deletion_requested)]
    if own and failure.exit_code is not None and failure.finished != own[-1][0].finished:
        state = own[-1][1]
        failure = replace(
            failure,
            exit_code=state["exitCode"],
            reason=str(state.get("reason") or ""),
            message=one_line(state.get("message")),
            finished=own[-1][0].finished,
            is_previous_run=True,
            runs_again=True,
        )
    earlier = [state for key, state in own if key.finished != failure.finished]
    return replace(failure, earlier_runs=tuple(map(describe_exit, earlier)))


def was_stopped(terminated: Obj, requested: str) -> bool:
    """Whether a container ended because the deletion of its pod was requested at that time, and not by itself.

    Times have whole seconds, so within one of them the exit code decides.
    """
    finished = str(terminated.get("finishedAt") or "")
    if not requested or not finished:
        return False
    late = (datetime.fromisoformat(finished) - datetime.fromisoformat(requested)).total_seconds()
    return late > 1 or (late >= 0 and terminated.get("exitCode") in STOPPED_CODES)


def describe_exit(terminated: Obj) -> str:
    """Return `exited CODE`, with the reason if that says more."""
    reason = str(terminated.get("reason") or "")
    code = f"exited {terminated.get('exitCode')}"
    return f"{code}, {reason}" if reason not in ("", "Error", "Completed") else code


def _container_failure(pod: Obj, disruption: Disruption, run: _FailedRun) -> PodFailure:
    state = run.state
    return PodFailure(
        name=name_of(pod),
        step=step_of(pod),
        index=index_of(pod),
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        container=run.container,
        exit_code=state.get("exitCode"),
        reason=str(state.get("reason") or ""),
        message=one_line(state.get("message") or disruption.message),
        finished=str(state.get("finishedAt") or ""),
        disruption=disruption.reason,
        disrupted=disruption.since,
        deletion_requested=deletion_requested(pod),
        owner=owner_of(pod),
        restarts=restart_count(pod),
        is_previous_run=run.is_previous,
        runs_again=run.runs_again,
        memory_limit=_memory_limit(pod, run.container),
    )


def waiting_of(pod: Obj) -> PendingPod | None:
    """Return what a pod is waiting for; None if its status does not say."""
    scheduled = condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        reason = str(scheduled.get("reason") or "")
        return PendingPod("scheduling", reason, one_line(scheduled.get("message") or reason))
    for container in container_statuses(pod):
        waiting = (container.get("state") or {}).get("waiting")
        if waiting and waiting.get("message"):
            reason = str(waiting.get("reason") or "")
            return PendingPod("image" if reason in _IMAGE_REASONS else "container", reason, one_line(waiting["message"]))
    return None


class _FailedRun(NamedTuple):
    """The failed run of a container; `is_previous` if it has restarted since."""

    container: str = ""
    state: Obj = {}
    is_previous: bool = False
    runs_again: bool = False


def _failed_containers(status: Obj) -> Iterator[_FailedRun]:
    """Yield the last run of each container if it failed."""
    for container in container_statuses({"status": status}):
        current, ends = container.get("state") or {}, run_ends(container)
        if ends and ends[-1].get("exitCode"):
            yield _FailedRun(str(container["name"]), ends[-1], not current.get("terminated"), "running" in current)


def _disruption_of(pod: Obj) -> Disruption:
    """Return the disruption of a pod: from the DisruptionTarget condition (Kubernetes 1.26), else from the pod's reason."""
    status, target = pod.get("status") or {}, condition(pod, "DisruptionTarget")
    if target is not None and target.get("status") == "True":
        message = str(target.get("message") or status.get("message") or "")
        return Disruption(str(target.get("reason") or "Evicted"), message, str(target.get("lastTransitionTime") or ""))
    reason = str(status.get("reason") or "")
    if reason in _PREEMPTIONS | _LOSSES | _EVICTIONS:
        return Disruption(reason, str(status.get("message") or ""))
    return Disruption()


def _memory_limit(pod: Obj, container: str) -> str:
    for entry in (pod.get("spec") or {}).get("containers") or []:
        if entry.get("name") == container:
            return str(((entry.get("resources") or {}).get("limits") or {}).get("memory", ""))
    return ""
