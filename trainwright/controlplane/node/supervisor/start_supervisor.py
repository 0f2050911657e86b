"""Starts the supervisors of containers: by a spawner that has loaded all they need, or directly where there is none."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

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
    _start([sys.executable, "-S", "-E", "-P", str(PROGRAM), str(folder), str(lock)], lock)


@dataclass
class SpawnerProcess:
    """A process that forks supervisors, such as spawner.py, and the connection to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket

    @classmethod
    def begin(cls, words: list[str], more: list[str], answer_seconds: float = ANSWER_SECONDS, **options: Any) -> SpawnerProcess:
        """Start a program with the number of its socket and `more` arguments. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = _start([*words, str(theirs.fileno()), *more], theirs.fileno(), **options)
        ours.settimeout(answer_seconds)
        return cls(process, ours)

    def ask(self, folder: Path, lock: int) -> bytes:
        """Return the answer to a request; empty if the process has ended. Raises OSError."""
        socket.send_fds(self.connection, [os.fsencode(folder)], [lock])
        return self.connection.recv(64)

    def end(self, seconds: float = ANSWER_SECONDS) -> None:
        """End the process, and wait for its end at most so long; supervisors stay."""
        self.connection.close()
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        if self.process.stdout is not None:
            self.process.stdout.close()


class SupervisorSpawner:
    """Keeps a spawner, which is started when it is first needed and again if it has died. Thread-safe.

    A supervisor is started directly when the spawner does not answer within `answer_seconds`: of two for one run the second does
    nothing (see supervise.py).
    """

    def __init__(self, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._answer_seconds = answer_seconds
        self._lock = threading.Lock()
        self._spawner: SpawnerProcess | None = None

    def start(self, folder: Path, lock: int) -> None:
        """Start the supervisor of a run. Raises OSError if the machine has no room for another process."""
        with self._lock:
            answer = self._ask(folder, lock)
        if not answer:
            start_directly(folder, lock)
        elif answer.startswith(FAILED):
            number = int(answer[len(FAILED) :])
            raise OSError(number, os.strerror(number))

    def stop(self) -> None:
        """End the spawner; supervisors stay."""
        with self._lock:
            self._end()

    def _ask(self, folder: Path, lock: int) -> bytes:
        """Return the spawner's answer; empty if there is none."""
        try:
            if self._spawner is None:
                words = [sys.executable, "-S", "-E", "-P", str(_SPAWNER)]
                self._spawner = SpawnerProcess.begin(words, [_ROOM], self._answer_seconds)
            answer = self._spawner.ask(folder, lock)
        except OSError as error:  # it has died, or does not answer: the run is started without it
            log.warning("event=no_spawner error=%s", error)
            answer = b""
        if not answer:
            self._end()
        return answer

    def _end(self) -> None:
        if self._spawner is not None:
            self._spawner.end(self._answer_seconds)
            self._spawner = None


def supervisor_spawner() -> SupervisorSpawner | None:
    """Return a spawner where it works: it needs sockets of packets and forks without side effects, as on Linux."""
    return SupervisorSpawner() if sys.platform == "linux" else None


def _start(words: list[str], inherited: int, **options: Any) -> subprocess.Popen[bytes]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": {"PATH": os.environ.get("PATH", os.defpath)}}
    return subprocess.Popen(
        words, pass_fds=(inherited,), start_new_session=True, stdin=subprocess.DEVNULL, **{**quiet, **options}
    )
