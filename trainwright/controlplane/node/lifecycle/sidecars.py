"""The order of a pod's containers: init containers and sidecars one after the other, then the main ones; back in reverse.

Source: the kubelet's computeInitContainerActions and terminationOrdering.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Role


def has_initialized(states: Sequence[ContainerState]) -> bool:
    """Whether a main container was ever started: from then on a sidecar that ends does not hold the others up."""
    return any(state.role is Role.MAIN and state.run is not None for state in states)


def may_start(states: Sequence[ContainerState]) -> list[ContainerState]:
    """Return the containers whose turn has come, whether they already run or not.

    Before the main containers that is the last one that was started and, once it is done, the one after it; and every sidecar
    before, which holds nobody up a second time.
    """
    if has_initialized(states):
        return [state for state in states if state.role is not Role.INIT]
    first = [state for state in states if state.role is not Role.MAIN]
    started = [position for position, state in enumerate(first) if state.run is not None]
    if not first or not started:
        return first[:1] or list(states)
    last = started[-1]
    turn = [state for position, state in enumerate(first[: last + 1]) if state.role is Role.SIDECAR or position == last]
    if not _is_done(first[last]):
        return turn
    return [*turn, *(first[last + 1 : last + 2] or [state for state in states if state.role is Role.MAIN])]


def may_stop(states: Sequence[ContainerState]) -> list[ContainerState]:
    """Return the living containers whose turn to stop has come: all but the sidecars; and after the main ones the last sidecar."""
    alive = [state for state in states if state.is_alive]
    turn = [state for state in alive if state.role is not Role.SIDECAR]
    if any(state.role is Role.MAIN for state in turn):
        return turn
    return turn + [state for state in alive if state.role is Role.SIDECAR][-1:]


def _is_done(state: ContainerState) -> bool:
    """Whether the next container may start: a sidecar has started, an init container has succeeded."""
    if state.role is Role.SIDECAR:
        return state.has_started
    return state.ended is not None and state.ended.code == 0
