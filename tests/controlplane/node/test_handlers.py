"""Handlers of probes and hooks against real commands and servers: what succeeds, what fails, and in which words."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_servers import Server, replies, serve
from support.ports import free_port

from trainwright.controlplane.node.handlers import (
    CommandResult,
    Outcome,
    Target,
    _varint,
    run_handler,
    run_hook,
)

pytestmark = pytest.mark.medium
SECONDS, SOON = 5.0, 0.15
Obj = dict[str, Any]


def execute(argv: list[str], timeout: float) -> CommandResult:
    """Run a command of this machine, as the node runs one in a container."""
    try:
        done = subprocess.run(argv, timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except subprocess.TimeoutExpired:
        return CommandResult(None, b"")
    return CommandResult(done.returncode, done.stdout)


def target(container: Obj | None = None, command: Callable[[list[str], float], CommandResult] = execute) -> Target:
    return Target({"name": "c", **(container or {})}, "127.0.0.1", command, threading.Event())


def exec_of(*command: str) -> Obj:
    return {"exec": {"command": list(command)}}


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("echo fine", Outcome(True, "fine\n")),
        ("echo why >&2; exit 3", Outcome(False, "why\n")),
        ("exit 137", Outcome(False, "")),
        ("printf '\\377'", Outcome(True, "\ufffd")),
    ],
)
def test_commands(script: str, outcome: Outcome) -> None:
    assert run_handler(exec_of("sh", "-c", script), target(), SECONDS) == outcome
    assert run_hook(exec_of("sh", "-c", script), target(), SECONDS) == outcome


def test_a_command_is_given_its_time() -> None:
    begun = time.monotonic()
    assert run_handler(exec_of("sleep", "60"), target(), SOON).is_success is False
    assert time.monotonic() - begun < SECONDS


def test_a_command_that_cannot_be_run_says_nothing_of_the_container() -> None:
    def broken(argv: list[str], timeout: float) -> CommandResult:
        raise FileNotFoundError(2, "No such file or directory", argv[0])

    found = run_handler(exec_of("none"), target(command=broken), SECONDS)
    assert found.is_success is None
    assert found.output.startswith("rpc error: code = Unknown desc = failed to exec in container: [Errno 2]")


def test_probes_expand_the_variables_that_the_spec_gives_a_value_and_hooks_do_not() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    handler = exec_of("echo", "$(A)", "[$(B)]", "$(C)", "$$(A)")
    assert run_handler(handler, target({"env": env}), SECONDS).output == "1 [] $(C) $(A)\n"
    assert run_hook(handler, target({"env": env}), SECONDS).output == "$(A) [$(B)] $(C) $$(A)\n"


def get_of(server: Server, **more: Any) -> Obj:
    return {"httpGet": {"port": server.port, **more}}


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("200 OK", Outcome(True, "body")),
        ("204 No Content", Outcome(True, "")),
        ("399 Odd", Outcome(True, "Probe terminated redirects, Response body: body", is_warning=True)),
        ("400 Bad Request", Outcome(False, "HTTP probe failed with statuscode: 400")),
        ("404 Not Found", Outcome(False, "HTTP probe failed with statuscode: 404")),
        ("503 Unavailable", Outcome(False, "HTTP probe failed with statuscode: 503")),
        (
            "302 Found|Location: http://example.com/",
            Outcome(True, "Probe terminated redirects, Response body: body", is_warning=True),
        ),
    ],
)
def test_probes_by_http(answer: str, outcome: Outcome) -> None:
    with serve(replies(answer, body="body")) as server:
        assert run_handler(get_of(server), target(), SECONDS) == outcome


def test_the_host_of_a_probe_and_a_named_port() -> None:
    with serve(replies("200 OK")) as server:
        container = {"ports": [{"name": "web", "containerPort": server.port}]}
        handler = {"httpGet": {"port": "web", "host": "localhost"}}
        assert run_handler(handler, target(container), SECONDS).is_success
        assert server.headers()[1] == f"Host: localhost:{server.port}"
        assert run_handler({"tcpSocket": {"port": "web"}}, target(container), SECONDS) == Outcome(True)


def test_a_server_that_is_not_there_or_never_answers() -> None:
    port = free_port()
    assert run_handler({"httpGet": {"port": port}}, target(), SECONDS) == Outcome(
        False, f'Get "http://127.0.0.1:{port}/": dial tcp 127.0.0.1:{port}: connect: connection refused'
    )
    with serve(lambda connection, _: connection.recv(1) and None) as server:
        found = run_handler(get_of(server), target(), SOON)
    assert found.is_success is False
    assert found.output.endswith("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")


def test_an_answer_whose_body_does_not_come_says_nothing() -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        connection.recv(1)

    with serve(answer) as server:
        assert run_handler(get_of(server), target(), SOON) == Outcome(
            None, "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
        )


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        ({}, "missing handler"),
        ({"httpGet": {"port": "web"}}, "couldn't find port: web in container c"),
        ({"tcpSocket": {"port": "web"}}, "couldn't find port: web in container c"),
        ({"tcpSocket": {"port": "70000"}}, "invalid port number: 70000"),
    ],
)
def test_a_handler_that_cannot_be_asked_decides_nothing(handler: dict[str, Any], why: str) -> None:
    assert run_handler(handler, target(), SECONDS) == Outcome(None, why)


def test_a_hook_by_https_takes_a_server_of_plain_http_but_shows_it_no_password() -> None:
    headers = [{"name": "authorization", "value": "Bearer x"}, {"name": "X-A", "value": "b"}]
    with serve(replies("200 OK")) as server:
        assert run_hook(get_of(server, scheme="HTTPS", httpHeaders=headers), target(), SECONDS) == Outcome(True)
        assert "X-A: b" in server.headers()
        assert "Bearer" not in server.requests[-1].decode()
        assert run_handler(get_of(server, scheme="HTTPS"), target(), SECONDS).is_success is False


def test_a_hook_needs_no_whole_answer() -> None:
    with serve(lambda connection, _: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")) as server:
        assert run_hook(get_of(server), target(), SECONDS).is_success


def test_a_hook_that_nobody_answers_has_failed() -> None:
    found = run_hook({"httpGet": {"port": free_port()}}, target(), SECONDS)
    assert found.is_success is False
    assert "connection refused" in found.output
    for handler in ({"httpGet": {"port": "none"}}, {"tcpSocket": {"port": 1}}):
        assert run_hook(handler, target(), SECONDS).is_success is False


@contextmanager
def health_server(statuses: dict[str, bytes], *, answers: bool = True) -> Iterator[int]:
    """A server of the gRPC health protocol: the status of each service as bytes; b"" for one that never answers."""
    grpc = pytest.importorskip("grpc", reason="gRPC probes need grpcio: pip install grpcio")
    released = threading.Event()

    def check(request: bytes, context: Any) -> bytes:
        service = request[2:].decode()
        if service not in statuses:
            context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        if not statuses[service]:
            released.wait(SECONDS)
        return statuses[service]

    server = grpc.server(ThreadPoolExecutor(2))
    if answers:
        handler = grpc.method_handlers_generic_handler(
            "grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(check)}
        )
        server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        released.set()
        server.stop(None).wait()


@pytest.mark.parametrize(
    ("service", "outcome"),
    [
        (None, Outcome(True, "service healthy")),
        ("", Outcome(True, "service healthy")),
        ("down", Outcome(False, 'service unhealthy (responded with "NOT_SERVING")')),
        ("unknown", Outcome(False, 'service unhealthy (responded with "SERVICE_UNKNOWN")')),
        ("none", Outcome(False, "error: health rpc probe failed: unknown service")),
        ("never", Outcome(False, "timeout: health rpc did not complete within 1s")),
    ],
)
def test_probes_by_grpc(service: str | None, outcome: Outcome) -> None:
    statuses = {"": b"\x08\x01", "down": b"\x08\x02", "unknown": b"\x08\x03", "never": b""}
    with health_server(statuses) as port:
        action = {"port": port} | ({} if service is None else {"service": service})
        assert run_handler({"grpc": action}, target(), 1) == outcome


def test_a_server_without_the_health_protocol() -> None:
    with health_server({}, answers=False) as port:
        found = run_handler({"grpc": {"port": port}}, target(), SECONDS)
    assert found.is_success is False
    assert found.output.startswith("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ")


def test_nobody_speaks_grpc_there() -> None:
    pytest.importorskip("grpc", reason="gRPC probes need grpcio: pip install grpcio")
    port = free_port()
    assert run_handler({"grpc": {"port": port}}, target(), SOON) == Outcome(
        False, f'timeout: failed to connect service "127.0.0.1:{port}" within 0s: context deadline exceeded'
    )


def test_without_grpcio_it_is_the_probe_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    assert run_handler({"grpc": {"port": 1}}, target(), SECONDS) == Outcome(None, "gRPC probes need grpcio: pip install grpcio")


@given(st.integers(0, 2**40))
def test_property_lengths_are_those_of_protobuf(value: int) -> None:
    encoded = _varint(value)
    assert sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(encoded)) == value
    assert [bool(byte & 0x80) for byte in encoded] == [True] * (len(encoded) - 1) + [False]
    assert len(encoded) == 1 or encoded[-1]
