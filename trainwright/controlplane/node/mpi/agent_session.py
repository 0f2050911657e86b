"""One connection of the launch agent, in a process of its own: a command, what it reads and prints, its signals, its end.

The command ends with the connection, and all that it started ends with it: this process is the parent of whatever loses its own.
Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import selectors
import shutil
import signal
import socket
import sys
import time

from trainwright.controlplane.node.mpi import wire
from trainwright.controlplane.node.supervisor.supervise import become_subreaper

MOST_OUTPUT = 256 * 1024
"""Bytes for the client that wait in this process; then the command waits."""
GRACE_SECONDS = 2.0
_NO_SHELLS = {"nologin", "false", "sync", "halt", "shutdown"}


def log(event: str, **details: object) -> None:
    """Print a line to the log of the pod. Commands and input are never part of it."""
    print(f"event={event}", *(f"{name}={_quoted(value)}" for name, value in details.items()), file=sys.stderr, flush=True)


def serve_client(connection: socket.socket, key: bytes, peer: tuple[str, int]) -> None:
    """Let the client prove itself, run its command, and end what is left of it. Raises WireError, OSError."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    try:
        wire.accept_peer(connection, key)
    except (wire.PeerLeft, ConnectionError):
        return
    except wire.WireError as error:
        log("refused", peer=_text(peer), reason=error)
        return
    become_subreaper()
    wakeup, wake = os.pipe()
    for descriptor in (wakeup, wake):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    session = Session(connection, wakeup, _text(peer))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, session.stop)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        session.run()
    finally:
        session.end_command()
    log("ended", peer=_text(peer), code=session.code)


class Session:
    """Runs the command of a client. `code` is its exit code, or None if it was not run to its end."""

    def __init__(self, connection: socket.socket, wakeup: int, peer: str):
        self.code: int | None = None
        self._connection, self._wakeup, self._peer = connection, wakeup, peer
        self._frames = wire.FrameReader()
        self._selector = selectors.DefaultSelector()
        self._to_client, self._to_command = bytearray(), bytearray()
        self._streams: dict[int, bytes] = {}
        """Open ends of the command's output, with the kinds of their frames."""
        self._input = -1
        self._input_ends = False
        self._pid, self._status = 0, -1
        self._stopping = False

    def run(self) -> None:
        """Return when the client has the command's exit code, or is gone, or `stop` was called. Raises WireError, OSError."""
        self._connection.setblocking(False)
        while not (self._stopping or (self.code is not None and not self._to_client)):
            self._watch()
            for ready, events in self._selector.select():
                if ready.fd == self._wakeup:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wakeup, wire.CHUNK)
                elif ready.fd == self._input:
                    self._write_input()
                elif ready.fd in self._streams:
                    self._read_output(ready.fd)
                elif not self._exchange(events):
                    return
            self._reap()
            if self._pid and self._status >= 0 and not self._streams and self.code is None:
                self.code = wire.exit_code(self._status)
                self._to_client += wire.number_frame(wire.EXIT, self.code)

    def stop(self, *_: object) -> None:
        self._stopping = True

    def end_command(self) -> None:
        """End the command, if it has not ended by itself, with all its descendants: SIGTERM, two seconds, SIGKILL."""
        if not self._pid or self.code is not None:
            return
        deadline = time.monotonic() + GRACE_SECONDS
        for number in (signal.SIGTERM, signal.SIGCONT):  # SIGCONT: a stopped process would not notice
            send(number, {self._pid} if self._status < 0 else set(), descendants())
        while remaining := self._remaining():
            if time.monotonic() > deadline:
                send(signal.SIGKILL, {self._pid} if self._status < 0 else set(), remaining)
            time.sleep(0.01)

    def _remaining(self) -> set[int]:
        self._reap()
        return descendants() or ({self._pid} if self._status < 0 else set())

    def _watch(self) -> None:
        """Watch what can make progress: nobody reads the command's output while the client does not."""
        wanted = {self._wakeup: selectors.EVENT_READ, self._connection.fileno(): selectors.EVENT_READ}
        if self._to_client:
            wanted[self._connection.fileno()] |= selectors.EVENT_WRITE
        if len(self._to_client) < MOST_OUTPUT:
            wanted |= dict.fromkeys(self._streams, selectors.EVENT_READ)
        if self._input >= 0 and self._to_command:
            wanted[self._input] = selectors.EVENT_WRITE
        watched = {fd: key.events for fd, key in self._selector.get_map().items()}
        for fd in watched.keys() - wanted.keys():
            self._selector.unregister(fd)
        for fd, events in wanted.items():
            if fd not in watched:
                self._selector.register(fd, events)
            elif watched[fd] != events:
                self._selector.modify(fd, events)

    def _exchange(self, events: int) -> bool:
        """Send to the client and receive from it. Return whether it is still there."""
        try:
            if events & selectors.EVENT_WRITE:
                del self._to_client[: self._connection.send(self._to_client)]
            if events & selectors.EVENT_READ:
                received = self._connection.recv(wire.CHUNK)
                if not received:
                    return False
                for kind, payload in self._frames.feed(received):
                    self._obey(kind, payload)
        except BlockingIOError:
            return True
        except (BrokenPipeError, ConnectionError):
            return False
        return True

    def _obey(self, kind: bytes, payload: bytes) -> None:
        if kind == wire.COMMAND and not self._pid:
            self._start(payload)
        elif kind == wire.INPUT and self._pid and not self._input_ends:
            if len(self._to_command) + len(payload) > wire.INPUT_WINDOW:
                raise wire.WireError("the client sends more input than is taken")
            if self._input >= 0:
                self._to_command += payload
            else:  # the command does not read
                self._to_client += wire.number_frame(wire.WINDOW, len(payload))
        elif kind == wire.INPUT_END and self._pid:
            self._input_ends = True
            if not self._to_command:
                self._close_input()
        elif kind == wire.SIGNAL and self._pid:
            number = wire.parse_number(payload, signal.NSIG - 1)
            if self._status < 0 and number:
                send(number, {self._pid}, set())
        else:
            raise wire.WireError(f"a frame of kind {kind.decode('ascii', 'replace')} is out of place")

    def _start(self, command: bytes) -> None:
        """Start the command by the user's shell in the user's home, as sshd does, with the variables of the container."""
        if b"\0" in command:
            raise wire.WireError("the command has a NUL byte")
        shell, home = shell_of_user()
        if os.path.isdir(home):
            os.chdir(home)
        stdin, self._input = os.pipe()
        (stdout, out), (stderr, err) = os.pipe(), os.pipe()
        try:
            self._pid = os.posix_spawn(
                shell,
                [shell, "-c", os.fsdecode(command)],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate((stdin, out, err))],
                setpgroup=0,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # which Python ignores
            )
        finally:
            for fd in (stdin, out, err):
                os.close(fd)
        os.set_blocking(self._input, False)
        self._streams = {stdout: wire.OUTPUT, stderr: wire.ERRORS}
        log("started", peer=self._peer, pid=self._pid)

    def _write_input(self) -> None:
        try:
            written = os.write(self._input, self._to_command)
        except BlockingIOError:
            return
        except BrokenPipeError:  # it does not read on: what is left is thrown away, as by ssh
            written = len(self._to_command)
            self._close_input()
        del self._to_command[:written]
        self._to_client += wire.number_frame(wire.WINDOW, written)
        if self._input_ends and not self._to_command:
            self._close_input()

    def _close_input(self) -> None:
        if self._input >= 0:
            self._forget(self._input)
            self._input = -1

    def _read_output(self, stream: int) -> None:
        received = os.read(stream, wire.CHUNK)
        if received:
            self._to_client += wire.frame(self._streams[stream], received)
        else:
            del self._streams[stream]
            self._forget(stream)

    def _forget(self, descriptor: int) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(descriptor)
        os.close(descriptor)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._pid:
                    self._status = status


def shell_of_user() -> tuple[str, str]:
    """Return the shell of this user, and HOME. A user without an entry, or whose shell lets nobody in, has /bin/sh."""
    home = os.environ.get("HOME", "/")
    try:
        shell = pwd.getpwuid(os.geteuid()).pw_shell
    except KeyError:
        return "/bin/sh", home
    usable = shell and os.path.basename(shell) not in _NO_SHELLS and shutil.which(shell) is not None
    return shell if usable else "/bin/sh", home


def descendants() -> set[int]:
    """Return the processes that descend from this one and still run; none where there is no /proc."""
    parents: dict[int, int] = {}
    try:
        names = os.listdir("/proc")
    except FileNotFoundError:
        return set()
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state != b"Z":
                parents[int(name)] = int(parent)
    found: set[int] = set()
    nearest = {os.getpid()}
    while nearest := {pid for pid, parent in parents.items() if parent in nearest} - found:
        found |= nearest
    return found


def send(number: int, groups: set[int], processes: set[int]) -> None:
    """Send a signal to groups and processes, as far as they still exist."""
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def _text(peer: tuple[str, int]) -> str:
    return f"{peer[0]}:{peer[1]}"


def _quoted(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and not set(' "=') & set(text) else repr(text)
