"""Runs probes when they are due, and the handlers of probes and hooks: exec, httpGet, tcpSocket, grpc, sleep.

The texts of failures are the kubelet's.
"""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from trainwright.api.objects import Obj
from trainwright.controlplane.node.expansion import expand_words
from trainwright.controlplane.node.lifecycle.probes import (
    READINESS,
    STARTUP,
    Health,
    Probe,
    ProbeState,
    after_result,
    due,
    first_state,
    health,
    next_time,
    probes_of,
)
from trainwright.controlplane.node.lifecycle.restarts import go_duration
from trainwright.controlplane.node.network.probe_client import (
    BodyFailed,
    GetFailed,
    HttpAnswer,
    NotEncrypted,
    dial_problem,
    http_get,
    join_host_port,
)

_PROBE_AGENT, _HOOK_AGENT = "kube-probe/1.36", "kube-lifecycle/1.36"
_OUTPUT_BYTES = 10 * 1024
_DIAL_SECONDS = 0.1
"""To tell a server that did not answer from one that is not there."""
_SERVING = b"\x08\x01"
"""HealthCheckResponse{status: SERVING} of the gRPC health protocol; requests and answers have one field each."""
_GRPC_STATUS = {0: "UNKNOWN", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


class ProbeRunner:
    """The probes of one run. `changed` is called after each result, `report` with those worth an event, in the threads of `pool`."""

    def __init__(
        self,
        container: Obj,
        target: Target,
        pool: Executor,
        *,
        started_at: float,
        is_restart: bool,
        changed: Callable[[], None],
        report: Report,
    ):
        self._states = {probe.kind: first_state(probe, started_at, is_restart=is_restart) for probe in probes_of(container)}
        self._target, self._pool, self._changed, self._report = target, pool, changed, report
        self._lock = threading.Lock()
        self._running: set[str] = set()

    def resume(self, *, was_started: bool, was_ready: bool) -> None:
        """Start from what was published: the run was probed by an earlier life of this node."""
        with self._lock:
            for kind, verdict in ((STARTUP, was_started), (READINESS, was_ready)):
                if (state := self._states.get(kind)) is not None and verdict:
                    self._states[kind] = replace(state, verdict=True, last=True, in_a_row=state.probe.successes)

    def health(self) -> Health:
        """What the probes say so far."""
        with self._lock:
            return health(self._states)

    def advance(self, now: float) -> float | None:
        """Start the probes that are due at `now` (seconds since the epoch), and return when the next one is."""
        with self._lock:
            return self._advance(self._states, now)

    def advance_stopping(self, now: float) -> float | None:
        """As `advance`, for a container that is being stopped: whether it is ready is still of interest.

        Source: StopLivenessAndStartup of the kubelet.
        """
        with self._lock:
            return self._advance({kind: state for kind, state in self._states.items() if kind == READINESS}, now)

    def _advance(self, states: dict[str, ProbeState], now: float) -> float | None:
        for probe in due(states, now):
            if probe.kind not in self._running:
                self._running.add(probe.kind)
                self._pool.submit(self._run, probe)
        waiting = {kind: state for kind, state in states.items() if kind not in self._running}
        if STARTUP in states and STARTUP not in waiting:
            return None  # no other probe runs before the startup probe has succeeded
        return next_time(waiting) if waiting else None

    def _run(self, probe: Probe) -> None:
        outcome = run_handler(probe.spec, self._target, probe.timeout)
        if self._target.stop.is_set():
            return  # the run was stopped meanwhile: the result is of no use
        with self._lock:
            self._running.discard(probe.kind)
            self._states[probe.kind] = after_result(self._states[probe.kind], outcome.is_success, time.time())
        if not outcome.is_success or outcome.is_warning:
            self._report(probe.kind, outcome)
        self._changed()


@dataclass(frozen=True)
class Outcome:
    """`is_success` is None if the handler itself could not be run, which says nothing about the container.

    `is_warning`: it succeeded, but `output` is worth an event.
    """

    is_success: bool | None
    output: str = ""
    is_warning: bool = False


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
    """Run the handler of a probe for at most `timeout` seconds."""
    if "exec" in handler:
        # Those that the container's spec gives a value itself. Source: `ExpandContainerCommandOnlyStatic`.
        variables = {str(entry["name"]): str(entry.get("value") or "") for entry in target.container.get("env") or []}
        return _run_command(handler["exec"], variables, target, timeout)
    if "httpGet" in handler:
        return _probe_http(handler["httpGet"], target, timeout)
    if "tcpSocket" in handler:
        return _connect(handler["tcpSocket"], target, timeout)
    if "grpc" in handler:
        return _check_grpc(handler["grpc"], target, timeout)
    if "sleep" in handler:
        return _sleep(handler["sleep"], target, timeout)
    return Outcome(None, "missing handler")


def _run_command(action: Obj, variables: dict[str, str] | None, target: Target, timeout: float) -> Outcome:
    """Run a command, in which references to `variables`, if there are any, are expanded."""
    argv = list(action.get("command") or [])
    try:
        argv = argv if variables is None else expand_words(argv, variables)
        result = target.command(argv, timeout)
    except OSError as error:  # it could not be started, which says nothing about the container
        return Outcome(None, f"rpc error: code = Unknown desc = failed to exec in container: {error}")
    if result.code is None:
        shown = json.dumps(" ".join(argv), ensure_ascii=False)
        return Outcome(False, f"command timed out: {shown} timed out after {go_duration(timeout)}")
    return Outcome(result.code == 0, result.output[:_OUTPUT_BYTES].decode("utf-8", "replace"))


def _probe_http(action: Obj, target: Target, timeout: float) -> Outcome:
    try:
        answer = _get(action, target, _PROBE_AGENT, timeout)
    except GetFailed as error:  # no answer: the container has failed the probe
        return Outcome(False, str(error))
    except (BodyFailed, ValueError) as error:  # an answer that breaks off, or a port name that the container does not have
        return Outcome(None, str(error))
    if answer.status < 200 or answer.status >= 400:
        return Outcome(False, f"HTTP probe failed with statuscode: {answer.status}")
    body = answer.body.decode("utf-8", "replace")
    if answer.status >= 300:
        return Outcome(True, f"Probe terminated redirects, Response body: {body}", is_warning=True)
    return Outcome(True, body)


def _get(action: Obj, target: Target, agent: str, timeout: float) -> HttpAnswer:
    """Send the GET of a handler. Raises GetFailed, BodyFailed, and ValueError for a port that there is not."""
    scheme, host = str(action.get("scheme") or "HTTP").lower(), str(action.get("host") or target.address)
    address = join_host_port(host, port_number(action.get("port"), target.container))
    own = [(str(entry["name"]), str(entry.get("value") or "")) for entry in action.get("httpHeaders") or []]
    given = {name.lower() for name, _ in own}
    defaults = [(name, value) for name, value in (("User-Agent", agent), ("Accept", "*/*")) if name.lower() not in given]
    path = str(action.get("path") or "/").removeprefix("/")
    return http_get(f"{scheme}://{address}/{path}", [*defaults, *own], timeout)


def _connect(action: Obj, target: Target, timeout: float) -> Outcome:
    try:
        port = port_number(action.get("port"), target.container)
    except ValueError as error:  # a port name that the container does not have
        return Outcome(None, str(error))
    host = str(action.get("host") or target.address)
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError as error:  # nobody listens: the container has failed the probe
        return Outcome(False, dial_problem(error, join_host_port(host, port)))
    return Outcome(True)


def _check_grpc(action: Obj, target: Target, timeout: float) -> Outcome:
    try:
        import grpc
    except ImportError:  # an optional package: no verdict on the container
        return Outcome(None, "gRPC probes need grpcio: pip install grpcio")
    service, port = str(action.get("service") or "").encode(), int(action["port"])
    request = b"\x0a" + _varint(len(service)) + service if service else b""
    with grpc.insecure_channel(join_host_port(target.address, port), options=[("grpc.enable_http_proxy", 0)]) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes)
        try:
            answer = check(request, timeout=timeout, wait_for_ready=True)
        except grpc.RpcError as error:  # also a server without the health protocol
            return Outcome(False, _grpc_problem(error.code().name, error.details() or "", (target.address, port), timeout))
    if answer[:2] == _SERVING:
        return Outcome(True, "service healthy")
    status = _GRPC_STATUS.get(answer[1] if len(answer) > 1 else 0, "UNKNOWN")
    return Outcome(False, f'service unhealthy (responded with "{status}")')


def _varint(value: int) -> bytes:
    size = max(math.ceil(value.bit_length() / 7), 1)
    groups = [(value >> (7 * index)) & 0x7F for index in range(size)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def _grpc_problem(code: str, details: str, place: tuple[str, int], timeout: float) -> str:
    if code == "DEADLINE_EXCEEDED":
        try:
            socket.create_connection(place, _DIAL_SECONDS).close()
        except OSError:  # refused, or nothing within the time
            within = f"within {go_duration(timeout)}: context deadline exceeded"
            return f'timeout: failed to connect service "{join_host_port(*place)}" {within}'
        return f"timeout: health rpc did not complete within {go_duration(timeout)}"
    if code == "UNIMPLEMENTED":
        return f"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {details}"
    return f"error: health rpc probe failed: {details}"


def _sleep(action: Obj, target: Target, timeout: float) -> Outcome:
    target.stop.wait(min(float(action.get("seconds") or 0), timeout))
    return Outcome(True)


def run_hook(handler: Obj, target: Target, timeout: float) -> Outcome:
    """Run the handler of a postStart or preStop hook for at most `timeout` seconds.

    Unlike a probe: any answer to a GET is a success, and a server of plain HTTP is good enough for HTTPS; a tcpSocket is no hook.
    Source: pkg/kubelet/lifecycle/handlers.go of Kubernetes.
    """
    if "exec" in handler:
        return _run_command(handler["exec"], None, target, timeout)
    if "httpGet" in handler:
        return _get_for_hook(handler["httpGet"], target, timeout)
    if "sleep" in handler:
        return _sleep(handler["sleep"], target, timeout)
    return Outcome(False, f"invalid handler: {', '.join(handler)}")


def _get_for_hook(action: Obj, target: Target, timeout: float) -> Outcome:
    try:
        try:
            _get(action, target, _HOOK_AGENT, timeout)
        except NotEncrypted:  # a plain server gets the request, but not the credentials
            headers = [entry for entry in action.get("httpHeaders") or [] if str(entry["name"]).lower() != "authorization"]
            _get({**action, "scheme": "HTTP", "httpHeaders": headers}, target, _HOOK_AGENT, timeout)
    except (GetFailed, ValueError) as error:  # no answer, or a port that there is not
        return Outcome(False, str(error))
    except BodyFailed as error:  # there was an answer, which is all that counts
        return Outcome(True, str(error))
    return Outcome(True)


def port_number(port: object, container: Obj) -> int:
    """Return a port by its name in the container, or by its number. Raises ValueError."""
    named = [entry["containerPort"] for entry in container.get("ports") or [] if entry.get("name") and entry["name"] == port]
    text = str(named[0] if named else port)
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"couldn't find port: {port} in container {container['name']}")
    if not 0 < int(text) < 2**16:
        raise ValueError(f"invalid port number: {text}")
    return int(text)


Report = Callable[[str, Outcome], None]
"""Called with the kind of the probe and what came of it."""
