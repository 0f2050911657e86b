"""Abstract Unix sockets belong to the network namespace, which pods share with the machine: Landlock keeps containers from them."""

from __future__ import annotations

import os
import signal
import socket
import struct

import pytest
from support.supervised_containers import Runs
from support.waiting import eventually

from trainwright.controlplane.node.isolation import credentials
from trainwright.controlplane.node.isolation.credentials import landlock_version, ruleset_attributes

CONNECT = """
import socket, sys
own = socket.socket(socket.AF_UNIX); own.bind("\\0own"); own.listen()
for name in (sys.argv[1], "own"):
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect("\\0" + name)
        print("connected", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


@pytest.fixture
def name() -> str:
    """The name of an abstract socket of the machine, which is open during the test."""
    if landlock_version() < 6:
        pytest.skip(f"this kernel's Landlock (version {landlock_version()}) has no scopes: they came with version 6, Linux 6.12")
    return f"trainwright-test-{os.getpid()}"


@pytest.mark.medium
@pytest.mark.parametrize("user", [0, 1000])
def test_container_and_its_commands_reach_only_their_own_abstract_sockets(runs: Runs, name: str, user: int) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        program = ("/usr/bin/python3", "-I", "-c", CONNECT, name)
        settings = {"securityContext": {"runAsUser": user}}
        assert runs.start(*program, pod=settings).output() == "Operation not permitted\nconnected\n"
        run = runs.start("sleep", "600", pod=settings)
        run.state()
        assert run.execute(*program).stdout == "Operation not permitted\nconnected\n"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"\0{name}")  # as it does outside


@pytest.mark.medium
def test_commands_still_signal_processes_of_the_container(runs: Runs, name: str) -> None:
    run = runs.start("sh", "-c", "trap 'echo told; exit 3' TERM; echo ready; while true; do sleep 0.05; done")
    run.state()
    eventually(lambda: "ready" in (run.folder / "log").read_text("utf-8"), what="the trap")
    run.execute("kill", f"-{signal.SIGTERM.value}", "1")  # it may end with the container before it returns
    assert run.output().splitlines()[-1] == "told"
    assert run.ended()["code"] == 3


@pytest.mark.parametrize(("version", "attributes"), [(0, b""), (1, b""), (5, b""), (6, struct.pack("=QQQ", 0, 0, 1)), (7, ...)])
def test_ruleset_scopes_abstract_sockets_only_where_the_kernel_can(version: int, attributes: object) -> None:
    """`...`: as for the version before."""
    assert ruleset_attributes(version) == (ruleset_attributes(version - 1) if attributes is ... else attributes)


def test_kernel_without_landlock_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "landlock_version", lambda: 0)
    monkeypatch.setattr(credentials, "_landlock_call", pytest.fail)
    credentials.leave_abstract_sockets_of_others()
