"""The next actions of a node for one pod: which containers to start, and which to stop, now and at what time to look again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainwright.api.objects import Obj
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Role
from trainwright.controlplane.node.lifecycle.ending import Ending, deadline_at, grace_left, grace_seconds
from trainwright.controlplane.node.lifecycle.restart_backoff import is_backing_off, next_backoff, restart_at
from trainwright.controlplane.node.lifecycle.restart_rules import is_finished, restart_policy
from trainwright.controlplane.node.lifecycle.sidecars import may_start, may_stop


@dataclass(frozen=True)
class Launch:
    """Start the `attempt`-th run of a container, whose end is followed by `backoff_seconds` of waiting."""

    container: ContainerState
    attempt: int
    backoff_seconds: float


@dataclass(frozen=True)
class Stop:
    """Stop a container's run: its preStop hook and SIGTERM, and SIGKILL after `grace_seconds`. `message` is that of the event.

    `waits`: only the hook runs for now, until it is the container's turn. Source: killContainer of the kubelet.
    """

    container: ContainerState
    grace_seconds: float
    message: str
    waits: bool = False


Action = Launch | Stop


@dataclass(frozen=True)
class Decision:
    """`wake_at` is when time alone changes the decision, in seconds since the epoch."""

    actions: tuple[Action, ...] = ()
    wake_at: float | None = None


def decide(pod: Obj, states: Sequence[ContainerState], ending: Ending | None, now: float) -> Decision:
    """Return the actions for the pod. They may be repeated: an executor ignores what it is doing already."""
    deadline = deadline_at(pod)
    if ending is not None:
        turn = may_stop(states)
        alive = (state for state in states if state.is_alive)
        stops = tuple(_stop(state, grace_left(ending, state, now), waits=state not in turn) for state in alive)
        return Decision(stops, deadline if deadline is not None and deadline > now else None)
    actions: list[Action] = [*_launches(pod, states, now), *_probe_stops(pod, states)]
    times = [*_wake_times(pod, states, now), *([] if deadline is None else [deadline])]
    return Decision(tuple(actions), min(times, default=None))


def _launches(pod: Obj, states: Sequence[ContainerState], now: float) -> Iterator[Launch]:
    for state in may_start(states):
        if state.is_alive or (state.blocked is not None and now < state.blocked.retry_at):
            continue
        if state.run is None:
            yield Launch(state, 0, 0.0)
        elif not is_finished(pod, state) and not is_backing_off(state, now):
            yield Launch(state, state.run.attempt + 1, next_backoff(state))


def _wake_times(pod: Obj, states: Sequence[ContainerState], now: float) -> Iterator[float]:
    for state in may_start(states):
        if state.blocked is not None and not state.is_alive:
            yield state.blocked.retry_at
        elif state.run is not None and not is_finished(pod, state) and is_backing_off(state, now):
            yield restart_at(state)


def _probe_stops(pod: Obj, states: Sequence[ContainerState]) -> Iterator[Stop]:
    """Yield the stops of containers that fail their liveness or startup probe.

    Rules for exit codes do not count before there is one. If no main container goes on, it is the pod that stops.
    Source: computePodActions and computeInitContainerActions of the kubelet, with their words.
    """
    goes_on = any(state.role is Role.MAIN and _goes_on(pod, state) for state in states)
    for state in states:
        if not state.failed_probe or not state.is_alive:
            continue
        if state.role is not Role.MAIN:
            yield Stop(state, probe_grace(pod, state), f"Init container {state.name} failed {state.failed_probe} probe")
        elif not goes_on:
            yield _stop(state, grace_seconds(pod))
        else:
            why = f"Container {state.name} failed {state.failed_probe} probe"
            is_replaced = restart_policy(pod, state) != "Never"
            yield Stop(state, probe_grace(pod, state), f"{why}, will be restarted" if is_replaced else why)


def _goes_on(pod: Obj, state: ContainerState) -> bool:
    """Whether a main container runs on, or is started (again)."""
    if state.is_alive:
        return not state.failed_probe or restart_policy(pod, state) != "Never"
    return not is_finished(pod, state)


def probe_grace(pod: Obj, state: ContainerState) -> float:
    """Return the grace of a container that is stopped for its probe: the probe's own, else the pod's."""
    probe = state.spec.get(f"{state.failed_probe}Probe") or {}
    own = probe.get("terminationGracePeriodSeconds")
    return grace_seconds(pod) if own is None else float(own)


def _stop(state: ContainerState, grace: float, *, waits: bool = False) -> Stop:
    return Stop(state, grace, stop_message(state), waits)


def stop_message(state: ContainerState) -> str:
    """Return the message of the event that a container is stopped with its pod."""
    return f"Stopping container {state.name}"
