"""What is known of one container of a pod: its latest run, the one before, what keeps it from starting, and its probes.

The pod's status and the next actions are computed from nothing else, so that a restarted node comes to the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from trainwright.api.containers import container_statuses, run_ends
from trainwright.api.objects import Obj

COMPLETED, ERROR = "Completed", "Error"
START_ERROR, STATUS_UNKNOWN, OUT_OF_MEMORY = "StartError", "ContainerStatusUnknown", "OOMKilled"
START_ERROR_CODE = 128
KILLED_CODE = 137


class Role(Enum):
    """When a container runs. A sidecar is an init container with `restartPolicy: Always`, which runs beside the main ones."""

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"


@dataclass(frozen=True)
class Termination:
    """How a run ended. Times are in seconds since the epoch; `started_at` is 0 if it never started. Signal n has code 128 + n."""

    code: int
    finished_at: float
    started_at: float = 0.0
    reason: str = ""
    message: str = ""

    @property
    def why(self) -> str:
        return self.reason or (COMPLETED if self.code == 0 else ERROR)


@dataclass(frozen=True)
class Run:
    """The `attempt`-th run (from 0). It is being started until `started_at` or `ended` is set.

    `backoff_seconds` is how long the next start waits after the end of this run. `is_held`: its postStart hook has not succeeded.
    """

    attempt: int
    identity: str
    started_at: float | None = None
    ended: Termination | None = None
    backoff_seconds: float = 0.0
    is_held: bool = False


@dataclass(frozen=True)
class Blocked:
    """Why a container was not started, as it is shown (a waiting reason and its message), and when to try again."""

    reason: str
    message: str
    retry_at: float


@dataclass(frozen=True)
class ContainerState:
    """The observed state of a container. `failed_probe` is `liveness` or `startup` when the run must be stopped for it."""

    name: str
    role: Role
    spec: Obj = field(default_factory=dict)
    run: Run | None = None
    previous: Termination | None = None
    blocked: Blocked | None = None
    is_startup_passed: bool = True
    is_ready: bool = True
    failed_probe: str = ""
    is_replaced: bool = False
    """The node stopped the run to start another one in its place: its end is not shown as a state of its own."""

    @property
    def ended(self) -> Termination | None:
        return self.run.ended if self.run is not None else None

    @property
    def is_alive(self) -> bool:
        """Whether it has a process, or may have one."""
        return self.run is not None and self.run.ended is None

    @property
    def is_running(self) -> bool:
        """Whether it is shown as running: its postStart hook has succeeded."""
        return self.run is not None and self.run.ended is None and self.run.started_at is not None and not self.run.is_held

    @property
    def has_started(self) -> bool:
        """Whether the containers after a sidecar may start: its startup probe has succeeded too."""
        return self.is_running and self.is_startup_passed

    @property
    def restarts(self) -> int:
        return self.run.attempt if self.run is not None else 0


def containers_of(pod: Obj) -> Iterator[tuple[Obj, Role]]:
    """Yield the containers of a pod in the order in which they start, with their roles."""
    for container in pod["spec"].get("initContainers") or []:
        yield container, Role.SIDECAR if is_sidecar(container) else Role.INIT
    for container in pod["spec"].get("containers") or []:
        yield container, Role.MAIN


def is_sidecar(container: Obj) -> bool:
    """Whether an init container is a sidecar."""
    return container.get("restartPolicy") == "Always" and not container.get("restartPolicyRules")


def field_path(state: ContainerState) -> str:
    """Return the path of a container in its pod, which events name."""
    return f"spec.{'containers' if state.role is Role.MAIN else 'initContainers'}{{{state.name}}}"


def visible_states(pod: Obj, states: Sequence[ContainerState]) -> tuple[ContainerState, ...]:
    """Return the states as far as the pod's published status has got: a run that has ended was seen running before.

    A kubelet shows each container as running before it shows it as terminated, and others wait for that. Only what ends before
    a container that is started with it has started is never seen to run.
    """
    shown = {status["name"]: status for status in container_statuses(pod)}
    return tuple(_visible(state, shown.get(state.name) or {}, _unseen_start(state, states, shown)) for state in states)


def _unseen_start(state: ContainerState, states: Sequence[ContainerState], shown: dict[str, Obj]) -> float:
    """Return when the last of the other containers has started of which no status says so yet, or 0."""
    starts = [0.0]
    for other in states:
        run = other.run
        if other is not state and run is not None and run.started_at is not None:
            status = shown.get(other.name) or {}
            if not was_shown_running(status, run) and not was_shown_ended(status, run):
                starts.append(run.started_at)
    return max(starts)


def _visible(state: ContainerState, status: Obj, unseen_start: float) -> ContainerState:
    run = state.run
    if run is None or run.ended is None or run.started_at is None or run.is_held:
        return state  # it runs, never ran, or is not shown as running
    if was_shown_running(status, run) or was_shown_ended(status, run) or run.ended.finished_at <= unseen_start:
        return state  # seen running, or ended before another that starts with it
    return replace(state, run=replace(run, ended=None))


def was_shown_running(status: Obj, run: Run) -> bool:
    """Whether a published container status says that this run is running."""
    return status.get("containerID") == run.identity and "running" in (status.get("state") or {})


def was_shown_ended(status: Obj, run: Run) -> bool:
    """Whether a published container status says that this run has ended."""
    return any(ended.get("containerID") == run.identity for ended in run_ends(status))


def published_status(pod: Obj, name: str) -> Obj:
    """Return a container's status as published, or an empty object."""
    return next((status for status in container_statuses(pod) if status["name"] == name), {})
