"""The order in which a pod's containers start and stop: init containers, sidecars, main ones, and back."""

from __future__ import annotations

from typing import Any

import pytest
from lifecycle_states import ended, init, main, running, sidecar, starting

from trainwright.controlplane.node.lifecycle.container_state import ContainerState
from trainwright.controlplane.node.lifecycle.sidecars import has_initialized, may_start, may_stop

DONE, FAILED, CRASHED = ended(0), ended(1), ended(1)


def names(states: list[ContainerState]) -> list[str]:
    return [state.name for state in states]


def probing(**more: Any) -> ContainerState:
    """A sidecar whose startup probe has not passed."""
    return sidecar(running(), is_startup_passed=False, **more)


@pytest.mark.parametrize(
    ("states", "turn"),
    [
        pytest.param([main(), main(name="n")], ["m", "n"], id="main ones together"),
        pytest.param([init(), main()], ["i"], id="an init container first"),
        pytest.param([init(running()), main()], ["i"], id="it runs"),
        pytest.param([init(FAILED), main()], ["i"], id="it has failed"),
        pytest.param([init(DONE), main()], ["i", "m"], id="it is done"),
        pytest.param([init(DONE), init(name="j"), main()], ["i", "j"], id="the next one"),
        pytest.param([init(DONE), init(DONE, name="j"), main()], ["j", "m"], id="all are done"),
        pytest.param([sidecar(), main()], ["s"], id="a sidecar first"),
        pytest.param([sidecar(starting()), main()], ["s"], id="it is about to run"),
        pytest.param([sidecar(running()), main()], ["s", "m"], id="it runs: nobody waits for its end"),
        pytest.param([probing(), main()], ["s"], id="its startup probe holds the others up"),
        pytest.param([sidecar(running(), is_ready=False), main()], ["s", "m"], id="its readiness does not"),
        pytest.param([sidecar(running()), sidecar(name="t"), main()], ["s", "t"], id="sidecars one after the other"),
        pytest.param([sidecar(running()), init(), main()], ["s", "i"], id="a sidecar serves the init containers after it"),
        pytest.param([init(DONE), sidecar(), main()], ["i", "s"], id="a sidecar after an init container"),
        pytest.param([sidecar(CRASHED), main()], ["s"], id="one that ended before the next one started holds it up"),
        pytest.param([sidecar(CRASHED), init(running()), main()], ["s", "i"], id="it is started again beside the next one"),
        pytest.param([sidecar(CRASHED), init(DONE), init(name="j"), main()], ["s", "i", "j"], id="and holds nobody up"),
        pytest.param([sidecar(CRASHED), init(DONE), main()], ["s", "i", "m"], id="not the main ones either"),
        pytest.param([sidecar(CRASHED), sidecar(running(), name="t"), main()], ["s", "t", "m"], id="nor after a later sidecar"),
        pytest.param([sidecar(running()), init(DONE), main(running())], ["s", "m"], id="no init container after the start"),
        pytest.param([sidecar(CRASHED), main(running()), main(name="n")], ["s", "m", "n"], id="after the start all at once"),
    ],
)
def test_whose_turn_it_is_to_start(states: list[ContainerState], turn: list[str]) -> None:
    assert names(may_start(states)) == turn


@pytest.mark.parametrize(
    ("states", "turn"),
    [
        pytest.param([main(running()), main(running(), name="n")], ["m", "n"], id="main ones together"),
        pytest.param([main(running()), main(DONE, name="n"), main(name="o")], ["m"], id="only those that live"),
        pytest.param([sidecar(running()), main(running())], ["m"], id="the main ones before the sidecars"),
        pytest.param([sidecar(running()), main(DONE)], ["s"], id="then the sidecars"),
        pytest.param([sidecar(running()), sidecar(running(), name="t"), main(DONE)], ["t"], id="the last one first"),
        pytest.param([sidecar(running()), sidecar(DONE, name="t"), main(DONE)], ["s"], id="then the one before"),
        pytest.param([sidecar(running()), init(running()), main()], ["i", "s"], id="an init container needs no sidecar to stop"),
        pytest.param([sidecar(starting()), main()], ["s"], id="what is about to run lives"),
        pytest.param([sidecar(), init(), main()], [], id="nothing"),
    ],
)
def test_whose_turn_it_is_to_stop(states: list[ContainerState], turn: list[str]) -> None:
    assert names(may_stop(states)) == turn


def test_a_pod_is_initialized_once_a_main_container_was_started() -> None:
    assert not has_initialized([init(DONE), main()])
    assert has_initialized([init(DONE), main(starting())])
    assert has_initialized([init(DONE), main(FAILED), main(name="n")])
