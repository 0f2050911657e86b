"""How long a container waits until it is started again: not at all, then 10 s, doubled each time up to 5 minutes.

Source: `doBackOff` of the kubelet, whose back-off is forgotten 10 minutes after the last start.
"""

from __future__ import annotations

from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Run

INITIAL_SECONDS = 10.0
MAXIMUM_SECONDS = 300.0
FORGET_SECONDS = 2 * MAXIMUM_SECONDS


def restart_at(state: ContainerState) -> float:
    """Return when a container whose run has ended is started again, in seconds since the epoch. Raises ValueError if it has not.

    One that was stopped for its probe is replaced at once if it has run for longer than its back-off: the kubelet counts from the
    end before then.
    """
    run = state.run
    if run is None or run.ended is None:
        raise ValueError(f"container {state.name!r} has not ended")
    ended = run.ended.finished_at
    has_waited = state.is_replaced and (state.previous is None or ended >= state.previous.finished_at + run.backoff_seconds)
    return ended if has_waited or _is_forgotten(run) else ended + run.backoff_seconds


def next_backoff(state: ContainerState) -> float:
    """Return the back-off of the run that follows the container's run, in seconds: what a start after that one's end has to wait.

    The replacement of the first run, which was stopped for its probe, is no restart for the kubelet's back-off.
    """
    run = state.run
    if run is None or (state.is_replaced and state.previous is None):
        return 0.0
    if run.backoff_seconds == 0 or _is_forgotten(run):
        return INITIAL_SECONDS
    return min(run.backoff_seconds * 2, MAXIMUM_SECONDS)


def is_backing_off(state: ContainerState, now: float) -> bool:
    """Whether the container has ended and waits. A clock that jumped back does not make it wait longer than its back-off."""
    run = state.run
    if run is None or run.ended is None:
        return False
    return run.ended.finished_at - run.backoff_seconds <= now < restart_at(state)


def go_duration(seconds: float) -> str:
    """Format whole seconds like Go: `10s`, `1m20s`, `5m0s`, `1h0m0s`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _is_forgotten(run: Run) -> bool:
    ended = run.ended
    return ended is not None and ended.started_at > 0 and ended.finished_at - ended.started_at > FORGET_SECONDS
