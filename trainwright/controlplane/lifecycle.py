"""Starts and stops an embedded control plane as a separate process in its own session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from trainwright.controlplane.controllers.local_queue.settings import CONFIG_MAP_NAME, parse_queues
from trainwright.controlplane.gates import parse_gates
from trainwright.controlplane.home import Home, Running

START_SECONDS = 60.0
STOP_SECONDS = 45.0
POLL_SECONDS = 0.02
_KILL_SECONDS = 5.0


class StartFailed(Exception):
    """The control plane did not start; the message is its last log line."""


def start(
    home: Home,
    *,
    port: int | None = None,
    node: bool = True,
    feature_gates: str = "",
    durability: str = "normal",
    queues: Path | None = None,
) -> tuple[Running, bool]:
    """Start a control plane in the home unless one is running; returns it and whether it was started.

    The process has its own session, so that Ctrl-C in the terminal does not reach it.
    Raises StartFailed, OSError for a home that is not writable or a file that is not readable, GateError, QueueError.
    """
    parse_gates(feature_gates)
    if queues is not None:
        parse_queues(queues.read_text("utf-8"))
    home.make()
    if (running := home.running()) is not None:
        if port not in (None, 0, running.port):
            raise StartFailed(
                f"a control plane already runs in {home.path} on port {running.port}; stop it first to start it on port {port}"
            )
        if queues is not None:
            raise StartFailed(
                f"a control plane already runs in {home.path}; stop it first to start it with these queues, "
                f"or change its ConfigMap {'/'.join(CONFIG_MAP_NAME)}"
            )
        return running, False
    command = command_line(home, port=port, node=node, feature_gates=feature_gates, durability=durability, queues=queues)
    with open(home.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
        began = log.tell()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if (running := home.running()) is not None:
            return running, running.pid == process.pid
        if process.poll() is not None and not home.is_locked():
            raise StartFailed(_last_words(home, began) or f"the control plane ended with exit code {process.returncode}")
        time.sleep(POLL_SECONDS)
    process.terminate()
    raise StartFailed(f"the control plane in {home.path} was not ready after {START_SECONDS:.0f} s; see {home.log}")


def command_line(
    home: Home,
    *,
    port: int | None,
    node: bool,
    feature_gates: str,
    durability: str = "normal",
    queues: Path | None = None,
) -> list[str]:
    """The command line of the control plane process."""
    command = [sys.executable, "-P", "-m", "trainwright.controlplane", "--home", str(home.path), "--feature-gates", feature_gates]
    command += ["--port", str(port)] if port is not None else []
    command += ["--durability", durability]
    command += ["--queues", str(queues.absolute())] if queues is not None else []
    return command if node else [*command, "--no-node"]


def stop(home: Home, seconds: float = STOP_SECONDS) -> bool:
    """Stop the control plane of the home and everything that it runs. Returns False if none is running.

    Raises TimeoutError if it does not end after SIGKILL.
    """
    if not home.is_locked():
        return False
    asked: Running | None = None
    deadline = time.monotonic() + seconds
    while home.is_locked() and time.monotonic() < deadline:
        if asked is None and (asked := home.running()) is not None:  # None while it is still starting
            _signal(asked.pid, signal.SIGTERM)
        time.sleep(POLL_SECONDS)
    if home.is_locked() and asked is not None:
        _signal(asked.pid, signal.SIGKILL)
        deadline = time.monotonic() + _KILL_SECONDS
        while home.is_locked() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    if home.is_locked():
        raise TimeoutError(f"the control plane in {home.path} did not stop; see {home.log}")
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _last_words(home: Home, began: int) -> str:
    with open(home.log, "rb") as log:
        log.seek(began)
        lines = log.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""
