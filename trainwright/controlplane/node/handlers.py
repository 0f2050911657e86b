"""Runs the handlers of probes and lifecycle hooks: exec, httpGet, tcpSocket, grpc, sleep. Words of failures are the kubelet's."""

from __future__ import annotations

import http.client
import math
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

from trainwright.api.objects import Obj

_USER_AGENT = "kube-probe/1.36"
_OUTPUT_BYTES = 10 * 1024
_REDIRECTS = 10
_SERVING = b"\x08\x01"
"""HealthCheckResponse{status: SERVING} of the gRPC health protocol; requests and answers have one field each."""
_GRPC_STATUS = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


@dataclass(frozen=True)
class Outcome:
    """`is_success` is None if the handler itself could not be run, which says nothing about the container."""

    is_success: bool | None
    output: str = ""


@dataclass(frozen=True)
class CommandResult:
    """The exit code of a command, or None if it ran out of time, and the start of its output."""

    code: int | None
    output: bytes


@dataclass(frozen=True)
class Target:
    """The container that a handler is about. `command` runs a command in it, with a limit in seconds; it raises OSError."""

    container: Obj
    address: str
    command: Callable[[list[str], float], CommandResult]
    stop: threading.Event
    """Ends a handler that sleeps."""


def run_handler(handler: Obj, target: Target, timeout: float) -> Outcome:
    """Run a handler for at most `timeout` seconds."""
    if "exec" in handler:
        return _run_command(list(handler["exec"].get("command") or []), target, timeout)
    if "httpGet" in handler:
        return _get(handler["httpGet"], target, timeout)
    if "tcpSocket" in handler:
        return _connect(handler["tcpSocket"], target, timeout)
    if "grpc" in handler:
        return _check_grpc(handler["grpc"], target, timeout)
    if "sleep" in handler:
        target.stop.wait(min(float(handler["sleep"].get("seconds") or 0), timeout))
        return Outcome(True)
    return Outcome(None, "missing handler")


def _run_command(argv: list[str], target: Target, timeout: float) -> Outcome:
    try:
        result = target.command(argv, timeout)
    except OSError as error:
        return Outcome(None, f"rpc error: code = Unknown desc = failed to exec in container: {error}")
    if result.code is None:
        return Outcome(False, f'command timed out: "{" ".join(argv)}" timed out after {timeout:g}s')
    return Outcome(result.code == 0, result.output[:_OUTPUT_BYTES].decode("utf-8", "replace"))


def _get(action: Obj, target: Target, timeout: float) -> Outcome:
    scheme = str(action.get("scheme") or "HTTP").lower()
    try:
        port = port_number(action.get("port"), target.container)
    except ValueError as error:
        return Outcome(None, str(error))
    host = str(action.get("host") or target.address)
    path = str(action.get("path") or "/")
    url = f"{scheme}://{_joined(host, port)}/{path.removeprefix('/')}"
    headers = {str(entry["name"]): str(entry.get("value") or "") for entry in action.get("httpHeaders") or []}
    asked = url
    try:
        for _ in range(_REDIRECTS):
            status, location = _request(asked, headers, timeout)
            if not (300 <= status < 400 and location):
                break
            following = urljoin(asked, location)
            if urlsplit(following).hostname != urlsplit(url).hostname:
                return Outcome(True)  # another host's health says nothing: the redirect itself counts
            asked = following
        else:
            return Outcome(False, f'Get "{url}": stopped after {_REDIRECTS} redirects')
    except (OSError, http.client.HTTPException) as error:
        return Outcome(False, f'Get "{url}": {_http_problem(error, _joined(host, port))}')
    return Outcome(200 <= status < 400, f"HTTP probe failed with statuscode: {status}")


def _request(url: str, headers: dict[str, str], timeout: float) -> tuple[int, str]:
    parts = urlsplit(url)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":  # a kubelet does not verify the certificates of pods either
        connection = http.client.HTTPSConnection(parts.netloc, timeout=timeout, context=ssl._create_unverified_context())  # noqa: S323
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=timeout)
    try:
        given = {name.lower() for name in headers}
        defaults = {"User-Agent": _USER_AGENT, "Accept": "*/*", "Connection": "close"}
        sent = {**{name: value for name, value in defaults.items() if name.lower() not in given}, **headers}
        connection.request("GET", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), headers=sent)
        response = connection.getresponse()
        return response.status, response.getheader("Location") or ""
    finally:
        connection.close()


def _connect(action: Obj, target: Target, timeout: float) -> Outcome:
    try:
        port = port_number(action.get("port"), target.container)
    except ValueError as error:
        return Outcome(None, str(error))
    host = str(action.get("host") or target.address)
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError as error:
        return Outcome(False, _dial_problem(error, _joined(host, port)))
    return Outcome(True)


def _check_grpc(action: Obj, target: Target, timeout: float) -> Outcome:
    try:
        import grpc
    except ImportError:
        return Outcome(None, "gRPC probes need grpcio: pip install grpcio")
    service = str(action.get("service") or "").encode()
    address = _joined(target.address, int(action["port"]))
    request = b"\x0a" + _varint(len(service)) + service if service else b""
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes)
        try:
            answer = check(request, timeout=timeout)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                why = "context deadline exceeded"
                return Outcome(False, f'timeout: failed to connect service "{address}" within {timeout:g}s: {why}')
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return Outcome(False, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)")
            return Outcome(False, f"error: health rpc probe failed: {error.details()}")
    status = _GRPC_STATUS.get(answer[1] if len(answer) > 1 else 0, "UNKNOWN")
    return Outcome(answer[:2] == _SERVING, f'service unhealthy (responded with "{status}")')


def port_number(port: object, container: Obj) -> int:
    """Return a port by its number, or by its name in the container. Raises ValueError."""
    if isinstance(port, int) or str(port).isdigit():
        return int(str(port))
    for entry in container.get("ports") or []:
        if entry.get("name") == port:
            return int(entry["containerPort"])
    raise ValueError(f"couldn't find port: {port} in container {container['name']}")


def _http_problem(error: Exception, address: str) -> str:
    if isinstance(error, TimeoutError):
        return "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    if isinstance(error, http.client.RemoteDisconnected):
        return "EOF"
    return _dial_problem(error, address) if isinstance(error, OSError) else f"net/http: {error}"


def _dial_problem(error: OSError, address: str) -> str:
    if isinstance(error, TimeoutError):
        return f"dial tcp {address}: i/o timeout"
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {address.rpartition(':')[0]}: no such host"
    return f"dial tcp {address}: connect: {(error.strerror or str(error)).lower()}"


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _varint(value: int) -> bytes:
    size = max(math.ceil(value.bit_length() / 7), 1)
    groups = [(value >> (7 * index)) & 0x7F for index in range(size)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])
