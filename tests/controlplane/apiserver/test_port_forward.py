"""port-forward with kubectl and the official Python client, on a node that runs real processes."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.waiting import eventually

from trainwright.api import names

pytestmark = pytest.mark.medium
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
ECHO = """
import os, socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
        self.request.sendall(b"!")
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
server = Server(("127.0.0.1", int(os.environ.get("PET_MASTER_PORT", 0))), Echo)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def echoing(entered: Any, name: str, **options: Any) -> int:
    """A pod that echoes, and the port of this machine at which it does."""
    entered.run(name, "", container={"command": [sys.executable, "-c", ECHO], **options.pop("container", {})}, **options)
    return int(next(chunk for chunk in entered.plane.cluster.logs(name, "default", follow=True) if chunk))


@pytest.fixture(scope="module")
def port(entered: Any) -> int:
    return echoing(entered, "echo")


@contextmanager
def forwarded(entered: Any, name: str, port: int) -> Iterator[tuple[int, Any]]:
    """The local port that kubectl forwards, and kubectl."""
    with entered.started("port-forward", name, f":{port}", "--address", "127.0.0.1") as kubectl:
        line = kubectl.stdout.readline().decode()
        found = re.search(r"127\.0\.0\.1:(\d+) -> ", line)
        assert found, line + kubectl.stderr.read().decode()
        yield int(found[1]), kubectl


def exchanged(local: int, content: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", local), timeout=30) as client:
        sending = threading.Thread(target=lambda: (client.sendall(content), client.shutdown(socket.SHUT_WR)))
        sending.start()
        received = b"".join(iter(lambda: client.recv(65536), b""))
        sending.join(30)
    return received


@needs_kubectl
def test_several_connections_at_once_and_a_large_one(entered: Any, port: int) -> None:
    with forwarded(entered, "echo", port) as (local, _):
        contents = [os.urandom(200_000) for _ in range(8)]
        answers: dict[int, bytes] = {}
        threads = [
            threading.Thread(target=lambda n=n, content=content: answers.update({n: exchanged(local, content)}))  # type: ignore[misc]
            for n, content in enumerate(contents)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert [answers[n] for n in range(8)] == [content + b"!" for content in contents]
        content = os.urandom(30_000_000)
        assert exchanged(local, content) == content + b"!"


@needs_kubectl
def test_a_connection_that_is_not_read_does_not_stop_the_others(entered: Any, port: int) -> None:
    with forwarded(entered, "echo", port) as (local, _), socket.create_connection(("127.0.0.1", local)) as silent:
        silent.sendall(b"x" * 10_000)
        assert exchanged(local, b"still here") == b"still here!"
        assert silent.recv(1) == b"x"


@needs_kubectl
def test_a_port_where_nobody_listens(entered: Any, port: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = free.getsockname()[1]
        with forwarded(entered, "echo", closed) as (local, kubectl):
            with socket.create_connection(("127.0.0.1", local), timeout=20) as client:
                assert client.recv(1) == b""
            assert kubectl.wait(20) == 1
            said = kubectl.stderr.read().decode()
    assert f"error forwarding port {closed} to pod echo" in said
    assert "Connection refused" in said


@needs_kubectl
def test_the_rendezvous_port_is_that_of_the_jobset(entered: Any) -> None:
    labels = {names.JOBSET_UID_LABEL: "a-jobset", names.JOBSET_NAME_LABEL: "none"}
    env = [{"name": "PET_MASTER_PORT", "value": str(names.RENDEZVOUS_PORT)}]
    real = echoing(entered, "rank0", metadata={"labels": labels}, container={"env": env})
    assert real != names.RENDEZVOUS_PORT
    with forwarded(entered, "rank0", names.RENDEZVOUS_PORT) as (local, _):
        assert exchanged(local, b"hello") == b"hello!"


@needs_kubectl
def test_forwarding_ends_with_the_client(entered: Any) -> None:
    port = echoing(entered, "left")
    with forwarded(entered, "left", port) as (local, kubectl), socket.create_connection(("127.0.0.1", local)) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        assert connections(port)
        kubectl.kill()
        eventually(lambda: not connections(port), 20)


def connections(port: int) -> int:
    """How many this machine has to a local port, ends counted, as long as they are established."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[3] == "01" and f":{port:04X}" in row[1] + row[2] for row in rows)


def test_the_official_python_client(entered: Any, port: int) -> None:
    portforward = pytest.importorskip("kubernetes.stream").portforward
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = free.getsockname()[1]
        forward = portforward(entered.core().connect_get_namespaced_pod_portforward, "echo", "default", ports=f"{port},{closed}")
        client = forward.socket(port)
        client.settimeout(20)
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        assert forward.socket(closed).recv(1) == b""
        assert "Connection refused" in forward.error(closed)
        assert forward.error(port) is None
        forward.close()
