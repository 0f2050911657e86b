"""Forwarded ports lead to the pod that was asked for, although all pods share the loopback interface."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from trainwright.controlplane.node.sessions.node_sessions import NodeSessions

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")

SESSIONS = NodeSessions(None)  # type: ignore[arg-type]  # the services are for the rendezvous port only


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server at the address of the first pod."""
    with socket.create_server(("127.3.2.1", 0)) as server:
        yield server


def peer(pod: dict[str, Any], port: int) -> str:
    async def connect() -> str:
        _, writer = await SESSIONS.connect(pod, port)
        address: str = writer.get_extra_info("peername")[0]
        writer.close()
        return address

    return asyncio.run(connect())


def test_a_port_at_the_address_of_the_pod(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with socket.create_server(("127.0.0.1", port)):
        assert peer({"status": {"podIP": "127.3.2.1"}}, port) == "127.3.2.1"
        assert peer({"status": {"podIP": "127.3.2.2"}}, port) == "127.0.0.1"
        assert peer({}, port) == "127.0.0.1"


def test_a_port_that_nobody_listens_at(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        peer({"status": {"podIP": "127.3.2.2"}}, port)
