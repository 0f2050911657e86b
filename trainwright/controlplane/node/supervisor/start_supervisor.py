"""Starts the supervisors of containers: by a spawner that has loaded all they need, or directly where there is none."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Protocol

from trainwright.controlplane.node.supervisor.spawner import FAILED

PROGRAM = Path(__file__).with_name("supervise.py")
_SPAWNER = Path(__file__).with_name("spawner.py")
_ROOM = "-" * 4096
"""An argument of the spawner that gives its children room for a command line of their own."""
ANSWER_SECONDS = 10.0
log = logging.getLogger(__name__)


class StartSupervisor(Protocol):
    """Starts the supervisor of the run in `folder`, which inherits the open file `lock`. Raises OSError."""

    def __call__(self, folder: Path, lock: int) -> None: ...


def start_directly(folder: Path, lock: int) -> None:
    """Start a supervisor as a child of this process, in a session of its own. Raises OSError."""
    _start([str(PROGRAM), str(folder), str(lock)], lock)


class SupervisorSpawner:
    """Keeps a spawner, which is started when it is first needed and again if it has died. Thread-safe.

    A supervisor is started directly when the spawner does not answer within `answer_seconds`: of two for one run the second does
    nothing (see supervise.py).
    """

    def __init__(self, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._answer_seconds = answer_seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def start(self, folder: Path, lock: int) -> None:
        """Start the supervisor of a run. Raises OSError if the machine has no room for another process."""
        with self._lock:
            answer = self._ask(os.fsencode(folder), lock)
        if not answer:
            start_directly(folder, lock)
        elif answer.startswith(FAILED):
            number = int(answer[len(FAILED) :])
            raise OSError(number, os.strerror(number))

    def stop(self) -> None:
        """End the spawner; supervisors stay."""
        with self._lock:
            self._end()

    def _ask(self, folder: bytes, lock: int) -> bytes:
        """Return the spawner's answer; empty if there is none."""
        try:
            if self._connection is None:
                self._connection = self._begin()
            socket.send_fds(self._connection, [folder], [lock])
            answer = self._connection.recv(64)
        except OSError as error:
            log.warning("event=no_spawner error=%s", error)
            answer = b""
        if not answer:
            self._end()
        return answer

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = _start([str(_SPAWNER), str(theirs.fileno()), _ROOM], theirs.fileno())
        ours.settimeout(self._answer_seconds)
        return ours

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(self._answer_seconds)
            self._process = None


def supervisor_spawner() -> SupervisorSpawner | None:
    """Return a spawner where it works: it needs sockets of packets and forks without side effects, as on Linux."""
    return SupervisorSpawner() if sys.platform == "linux" else None


def _start(arguments: list[str], inherited: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-S", "-E", "-P", *arguments],
        pass_fds=(inherited,),
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", os.defpath)},
    )
