"""Stands in for sshd in the pods of an MPI job: starts what `remote_shell.py` asks for, so that ranks belong to the right pod.

Usage: launch_agent.py [OPTIONS OF SSHD]. Listens on TRAINWRIGHT_POD_IP only, since pods share the machine's loopback interface, and
serves those who prove to have the job's key, the file TRAINWRIGHT_MPI_KEY. Each connection has a process (`agent_session.py`).
Standard library only. It is process 1 of a container: it waits for every process that has lost its parent.
"""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":  # started with -P: the package is not in the path
    for _number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # at once: process 1 ignores a signal without a handler
        signal.signal(_number, lambda *_: os._exit(0))
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4)))

import contextlib
import select
import socket
import time

from trainwright.controlplane.node.mpi import wire
from trainwright.controlplane.node.mpi.agent_session import descendants, log, send, serve_client
from trainwright.controlplane.node.mpi.ssh_options import OptionError, sshd_port
from trainwright.controlplane.node.supervisor.supervise import become_subreaper

BACKLOG, MOST_SESSIONS = 128, 256
END_SECONDS = 5.0
CANNOT_START = 255


def main() -> int:
    try:
        key = wire.read_key(os.environ[wire.KEY])
        listener = listen(os.environ[wire.ADDRESS], sshd_port(sys.argv[1:]))
    except KeyError as error:
        return fail(f"the variable {error.args[0]} is not set")
    except (OSError, OptionError, wire.WireError) as error:
        return fail(str(error))
    become_subreaper()  # it is not process 1 on a node without isolation
    agent = Agent(listener, key)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, agent.stop)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # so that `select` is woken, and children are waited for
    log("listening", address=listener.getsockname()[0], port=listener.getsockname()[1])
    agent.run()
    return 0


def listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises OSError, whose text has the address."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on {address}:{port}: {os.strerror(error.errno or 0)}") from error
    return listener


class Agent:
    """Accepts connections until it is stopped. Its children are sessions, and processes that sessions have left."""

    def __init__(self, listener: socket.socket, key: bytes):
        self._listener, self._key = listener, key
        self._sessions: set[int] = set()
        self._stopping = False

    def run(self) -> None:
        """Return when `stop` was called, and the sessions have ended."""
        self._listener.setblocking(False)
        wakeup, wake = os.pipe()
        for descriptor in (wakeup, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        while not self._stopping:
            ready, _, _ = select.select([self._listener.fileno(), wakeup], [], [])
            if wakeup in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wakeup, wire.CHUNK)
            self._reap()
            if self._listener.fileno() in ready:
                self._accept()
        self._listener.close()
        self._end_sessions()

    def _accept(self) -> None:
        try:
            connection, peer = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # it is gone again
            return
        except OSError as error:
            log("accept_failed", error=error)
            time.sleep(0.1)  # no descriptor is free, for example
            return
        with connection:
            connection.setblocking(True)
            self._start_session(connection, peer)

    def stop(self, *_: object) -> None:
        self._stopping = True

    def _start_session(self, connection: socket.socket, peer: tuple[str, int]) -> None:
        if len(self._sessions) >= MOST_SESSIONS:
            log("refused", peer=peer, reason=f"there are {MOST_SESSIONS} connections")
            return
        try:
            pid = os.fork()
        except OSError as error:
            log("refused", peer=peer, reason=error)
            return
        if pid:
            self._sessions.add(pid)
            return
        ended = 1
        try:
            self._listener.close()
            serve_client(connection, self._key, peer)
            ended = 0
        except (OSError, wire.WireError) as error:
            log("session_failed", peer=peer, error=error)
        finally:
            os._exit(ended)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self._sessions.discard(pid)

    def _end_sessions(self) -> None:
        for pid in self._sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS
        while self._sessions and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.01)
        send(signal.SIGKILL, set(), descendants())


def fail(problem: str) -> int:
    log("failed", error=problem)
    return CANNOT_START


if __name__ == "__main__":
    sys.exit(main())
