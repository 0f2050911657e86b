"""Stands in for ssh when mpirun starts its daemons: runs a command in another pod of the job, by that pod's launch agent.

Usage: remote_shell.py [OPTIONS OF SSH] HOST COMMAND [WORD ...]. Standard input, output, errors, signals and the exit code are the
command's; 255 is this program's own failure, as with ssh. The command ends when this program does. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from typing import NoReturn

if __name__ == "__main__":  # started with -P: the package is not in the path
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4)))

from trainwright.controlplane.node.mpi import wire
from trainwright.controlplane.node.mpi.agent_session import shell_of_user
from trainwright.controlplane.node.mpi.ssh_options import OptionError, SshCommand, parse_ssh

FAILED = 255
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_STDIN, _STDOUT, _STDERR = 0, 1, 2
_LOCALHOST = "127.0.0.1"
"""The address of all pods where there is only this one, on macOS."""


def main() -> int:
    open_standard_streams()
    try:
        wanted = parse_ssh(sys.argv[1:])
        if is_this_pod(wanted.host):
            run_here(wanted)
        key = wire.read_key(os.environ.get(wire.KEY) or os.path.expanduser("~/.ssh/id_rsa"))
        connection = connect(wanted)
    except (OptionError, OSError, wire.WireError) as error:
        return fail(str(error))
    try:
        with connection:
            wire.greet_agent(connection, key)
            return Client(connection, wanted).run()
    except (OSError, wire.WireError) as error:
        return fail(f"{wanted.host}: {error}")


def is_this_pod(host: str) -> bool:
    """Whether a host is the pod of this process, where no agent listens.

    Open MPI 4 does not notice: it looks for the address among those of interfaces, and the loopback one has only 127.0.0.1.
    """
    own = os.environ.get(wire.ADDRESS)
    try:
        return own is not None and own != _LOCALHOST and own in socket.gethostbyname_ex(host)[2]
    except OSError:
        return False


def run_here(wanted: SshCommand) -> NoReturn:
    """Become the command, as an agent would start it. Raises OSError."""
    shell, home = shell_of_user()
    if os.path.isdir(home):
        os.chdir(home)
    if not wanted.reads_input:
        os.dup2(os.open(os.devnull, os.O_RDONLY), _STDIN)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    os.execv(shell, [shell, "-c", wanted.command])  # noqa: S606  # as ssh does


def open_standard_streams() -> None:
    """Open those that are closed: a connection would get their numbers."""
    for descriptor in (_STDIN, _STDOUT, _STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def connect(wanted: SshCommand) -> socket.socket:
    """Connect to the agent of the host, with a second between attempts. Raises OSError, whose text has the host."""
    for attempt in range(wanted.attempts):
        if attempt:
            time.sleep(1.0)
        try:
            connection = socket.create_connection((wanted.host, wanted.port), timeout=wire.HANDSHAKE_SECONDS)
        except OSError as error:
            last = error
        else:
            connection.settimeout(None)
            return connection
    if isinstance(last, socket.gaierror):
        reason = "pods find each other by name only where they are isolated, see `trainwright status`"
        raise OSError(f"no pod {wanted.host} is known here: {reason}") from last
    raise OSError(f"cannot connect to {wanted.host}, port {wanted.port}: {last}") from last


class Client:
    """Passes on what goes in and out until the command's exit code arrives."""

    def __init__(self, connection: socket.socket, wanted: SshCommand):
        self._connection, self._wanted = connection, wanted
        self._frames = wire.FrameReader()
        self._window = wire.INPUT_WINDOW
        self._reads_input = wanted.reads_input
        self._signals: list[int] = []

    def run(self) -> int:
        """Return the exit code of the command. Raises WireError, OSError."""
        wakeup, wake = os.pipe()
        for descriptor in (wakeup, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:  # such as by nohup
                signal.signal(number, lambda received, _frame: self._signals.append(received))
        self._send(wire.frame(wire.COMMAND, os.fsencode(self._wanted.command)))
        if not self._reads_input:
            self._send(wire.frame(wire.INPUT_END))
        while True:
            watched = [self._connection.fileno(), wakeup, *([_STDIN] if self._reads_input and self._window else [])]
            for descriptor in _readable(watched):
                if descriptor == wakeup:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wakeup, wire.CHUNK)
                elif descriptor == _STDIN:
                    self._pass_input()
                elif (code := self._receive()) is not None:
                    return code
            while self._signals:
                self._send(wire.number_frame(wire.SIGNAL, self._signals.pop(0)))

    def _receive(self) -> int | None:
        received = self._connection.recv(wire.CHUNK)
        if not received:
            raise wire.WireError("the connection was closed before the command ended")
        for kind, payload in self._frames.feed(received):
            if kind == wire.OUTPUT:
                _write(_STDOUT, payload)
            elif kind == wire.ERRORS:
                _write(_STDERR, payload)
            elif kind == wire.WINDOW:
                self._window += wire.parse_number(payload, wire.INPUT_WINDOW)
            elif kind == wire.EXIT:
                return wire.parse_number(payload, 255)
        return None

    def _pass_input(self) -> None:
        try:
            found = os.read(_STDIN, min(wire.CHUNK, self._window))
        except BlockingIOError:
            return
        except OSError:  # a terminal that is gone, or what cannot be read
            found = b""
        if found:
            self._window -= len(found)
            self._send(wire.frame(wire.INPUT, found))
        else:
            self._reads_input = False
            self._send(wire.frame(wire.INPUT_END))

    def _send(self, data: bytes) -> None:
        self._connection.sendall(data)


def _readable(descriptors: list[int]) -> list[int]:
    """Wait for some of these. Files are always readable, which only `select` knows everywhere."""
    return select.select(descriptors, [], [])[0]


def _write(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # another program has set the file so
            time.sleep(0.01)


def fail(problem: str) -> int:
    print(f"remote shell: {problem}", file=sys.stderr, flush=True)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
