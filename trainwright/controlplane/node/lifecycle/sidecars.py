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

    Before the main containers that is every sidecar so far and the first init container that has not succeeded.
    """
    if has_initialized(states):
        return [state for state in states if state.role is not Role.INIT]
    turn: list[ContainerState] = []
    for state in states:
        if state.role is Role.MAIN:
            turn.append(state)
        elif state.role is Role.SIDECAR:
            turn.append(state)
            if not state.has_started:
                return turn
        elif state.ended is None or state.ended.code != 0:
            return [*turn, state]
    return turn


def may_stop(states: Sequence[ContainerState]) -> list[ContainerState]:
    """Return the living containers whose turn to stop has come: all but the sidecars, then these in reverse order, one by one."""
    alive = [state for state in states if state.is_alive]
    first = [state for state in alive if state.role is not Role.SIDECAR]
    return first or alive[-1:]
