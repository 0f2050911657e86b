"""The next actions of a node for one pod: which containers to start, and which to stop, now and at what time to look again.

A pod stops as a whole when it was deleted, is past its deadline, was evicted, or is done. Init containers and sidecars start one after
the other, then the main ones; they stop in reverse. Source: the kubelet's computeInitContainerActions and terminationOrdering.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainwright.api.objects import Obj, is_deleting
from trainwright.api.times import parse_time
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Role
from trainwright.controlplane.node.lifecycle.restarts import (
    has_failed,
    is_backing_off,
    is_finished,
    next_backoff,
    restart_at,
    restart_policy,
)

TERMINAL = ("Succeeded", "Failed")
"""The phases that a pod does not leave."""
DEADLINE_REASON = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"
EVICTED_REASON = "Evicted"
EVICTION_GRACE_SECONDS = 1.0
_DEFAULT_GRACE_SECONDS = 30.0


@dataclass(frozen=True)
class Decision:
    """`wake_at` is when time alone changes the decision, in seconds since the epoch."""

    actions: tuple[Action, ...] = ()
    wake_at: float | None = None


def decide(pod: Obj, states: Sequence[ContainerState], ending: Ending | None, now: float) -> Decision:
    """Return the actions for the pod. They may be repeated: an executor ignores what it is doing already."""
    deadline = deadline_at(pod)
    if ending is not None:  # nothing is started any more; only the deadline can shorten what is left
        turn = may_stop(states)
        alive = (state for state in states if state.is_alive)
        stops = tuple(_stop(state, grace_left(ending, state, now), waits=state not in turn) for state in alive)
        return Decision(stops, deadline if deadline is not None and deadline > now else None)
    actions: list[Action] = [*_launches(pod, states, now), *_probe_stops(pod, states)]
    times = [*_wake_times(pod, states, now), *([] if deadline is None else [deadline])]
    return Decision(tuple(actions), min(times, default=None))


def _stop(state: ContainerState, grace: float, *, waits: bool = False) -> Stop:
    return Stop(state, grace, stop_message(state), waits)


def _launches(pod: Obj, states: Sequence[ContainerState], now: float) -> Iterator[Launch]:
    for state in may_start(states):
        if state.is_alive or (state.blocked is not None and now < state.blocked.retry_at):
            continue  # it runs, or what it lacked a moment ago is not there yet
        if state.run is None:
            yield Launch(state, 0, 0.0)
        elif not is_finished(pod, state) and not is_backing_off(state, now):
            yield Launch(state, state.run.attempt + 1, next_backoff(state))


def _probe_stops(pod: Obj, states: Sequence[ContainerState]) -> Iterator[Stop]:
    """Yield the stops of containers that fail their liveness or startup probe.

    Rules for exit codes do not count before there is one. If no main container goes on, it is the pod that stops.
    Source: computePodActions and computeInitContainerActions of the kubelet, with their words.
    """
    goes_on = any(state.role is Role.MAIN and _goes_on(pod, state) for state in states)
    for state in states:
        if not state.failed_probe or not state.is_alive:
            continue  # nothing to stop
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


def _wake_times(pod: Obj, states: Sequence[ContainerState], now: float) -> Iterator[float]:
    for state in may_start(states):
        if state.blocked is not None and not state.is_alive:
            yield state.blocked.retry_at
        elif state.run is not None and not is_finished(pod, state) and is_backing_off(state, now):
            yield restart_at(state)


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


def probe_grace(pod: Obj, state: ContainerState) -> float:
    """Return the grace of a container that is stopped for its probe: the probe's own, else the pod's."""
    probe = state.spec.get(f"{state.failed_probe}Probe") or {}
    own = probe.get("terminationGracePeriodSeconds")
    return grace_seconds(pod) if own is None else float(own)


def stop_message(state: ContainerState) -> str:
    """Return the message of the event that a container is stopped with its pod."""
    return f"Stopping container {state.name}"


@dataclass(frozen=True)
class Ending:
    """`reason` and `message` are those of the pod's status; they are empty for one that was deleted, or has done its work.

    `began_at` is since when the grace counts, in seconds since the epoch; None: since each container is told to stop.
    """

    grace_seconds: float
    reason: str = ""
    message: str = ""
    is_deletion: bool = False
    began_at: float | None = None


def ending_of(pod: Obj, states: Sequence[ContainerState], now: float, evicted: str = "") -> Ending | None:
    """Return why the pod must stop, or None. `evicted` is the message of an eviction by this node; `now` is in seconds.

    A pod that passes its deadline while it is being deleted has failed for it all the same; one that has ended already has not.
    """
    grace, deadline = grace_seconds(pod), deadline_at(pod)
    if evicted:
        return Ending(EVICTION_GRACE_SECONDS, EVICTED_REASON, evicted, is_deletion=is_deleting(pod))
    is_late = deadline is not None and now >= deadline and not is_terminal(pod)
    reason, message = (DEADLINE_REASON, DEADLINE_MESSAGE) if is_late else ("", "")
    if is_deleting(pod):
        own = pod["metadata"].get("deletionGracePeriodSeconds")
        grace = grace if own is None else float(own)
        # The timestamp is when the grace ends. It has whole seconds: what was cut off is the pod's.
        stamp = pod["metadata"].get("deletionTimestamp")
        began_at = None if stamp is None else parse_time(stamp).timestamp() + 1.0 - grace
        return Ending(grace, reason, message, is_deletion=True, began_at=began_at)
    if is_late:
        return Ending(grace, reason, message, began_at=deadline)
    mains = [state for state in states if state.role is Role.MAIN]
    is_done = bool(mains) and all(is_finished(pod, state) for state in mains)
    failed = [state for state in states if state.role is Role.INIT and has_failed(pod, state)]
    if is_done or failed:
        ends = [state.ended.finished_at for state in failed or mains if state.ended is not None]
        return Ending(grace, began_at=max(ends))
    return None


Action = Launch | Stop


def grace_left(ending: Ending, state: ContainerState, now: float) -> float:
    """Return how long a container has to stop, in seconds, from `now` on.

    A sidecar waits for its turn within the grace of the pod. Source: killContainer of the kubelet.
    """
    if state.role is not Role.SIDECAR or ending.began_at is None:
        return ending.grace_seconds
    return max(ending.grace_seconds - max(now - ending.began_at, 0.0), 0.0)


def is_terminal(pod: Obj) -> bool:
    """Whether the published phase of a pod is one that it does not leave."""
    return (pod.get("status") or {}).get("phase") in TERMINAL


def grace_seconds(pod: Obj) -> float:
    """Return how long the pod's containers have to stop, in seconds."""
    grace = pod["spec"].get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE_SECONDS if grace is None else float(grace)


def deadline_at(pod: Obj) -> float | None:
    """Return the time of the pod's `activeDeadlineSeconds` in seconds since the epoch, counted from its start on the node."""
    seconds, started = pod["spec"].get("activeDeadlineSeconds"), (pod.get("status") or {}).get("startTime")
    if seconds is None or started is None:
        return None  # it has none, or does not count before the node has seen the pod
    return parse_time(started).timestamp() + float(seconds)


def has_initialized(states: Sequence[ContainerState]) -> bool:
    """Whether a main container was ever started: from then on a sidecar that ends does not hold the others up."""
    return any(state.role is Role.MAIN and state.run is not None for state in states)


def may_start(states: Sequence[ContainerState]) -> list[ContainerState]:
    """Return the containers whose turn has come, whether they already run or not.

    Before the main containers that is the last one that was started and, once it is done, the one after it; and every sidecar
    before, which holds nobody up a second time.
    """
    if has_initialized(states):  # init containers are not repeated
        return [state for state in states if state.role is not Role.INIT]
    first = [state for state in states if state.role is not Role.MAIN]
    started = [position for position, state in enumerate(first) if state.run is not None]
    if not first or not started:
        return first[:1] or list(states)
    last, latest = started[-1], first[started[-1]]
    turn = [state for position, state in enumerate(first[: last + 1]) if state.role is Role.SIDECAR or position == last]
    has_succeeded = latest.ended is not None and latest.ended.code == 0
    if not (latest.has_started if latest.role is Role.SIDECAR else has_succeeded):
        return turn  # the next one waits until a sidecar has started, or an init container has succeeded
    return [*turn, *(first[last + 1 : last + 2] or [state for state in states if state.role is Role.MAIN])]


def may_stop(states: Sequence[ContainerState]) -> list[ContainerState]:
    """Return the living containers whose turn to stop has come: all but the sidecars; and after the main ones the last sidecar."""
    alive = [state for state in states if state.is_alive]
    turn = [state for state in alive if state.role is not Role.SIDECAR]
    if any(state.role is Role.MAIN for state in turn):
        return turn  # sidecars serve the main containers until these have ended
    return turn + [state for state in alive if state.role is Role.SIDECAR][-1:]
