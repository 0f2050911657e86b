"""How long a container waits until it is started again: not at all, then 10 s, doubled each time up to 5 minutes.

Source: the kubelet's container back-off, which is forgotten after a run of twice its maximum.
"""

from __future__ import annotations

from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Run

INITIAL_SECONDS = 10.0
MAXIMUM_SECONDS = 300.0
FORGET_SECONDS = 2 * MAXIMUM_SECONDS


def restart_at(run: Run) -> float:
    """Return when a container whose run has ended is started again, in seconds since the epoch. Raises ValueError if it has not."""
    if run.ended is None:
        raise ValueError(f"run {run.identity} has not ended")
    return run.ended.finished_at if _is_forgotten(run) else run.ended.finished_at + run.backoff_seconds


def next_backoff(run: Run | None) -> float:
    """Return the back-off of the run that follows `run`, in seconds: what a start after that one's end will have to wait."""
    if run is None:
        return 0.0
    if run.backoff_seconds == 0 or _is_forgotten(run):
        return INITIAL_SECONDS
    return min(run.backoff_seconds * 2, MAXIMUM_SECONDS)


def is_backing_off(state: ContainerState, now: float) -> bool:
    """Whether the container has ended and waits. A clock that jumped back does not make it wait longer than its back-off."""
    run = state.run
    if run is None or run.ended is None:
        return False
    return run.ended.finished_at - run.backoff_seconds <= now < restart_at(run)


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
