"""An exec session: a child process with pipes or a terminal, killed when its container terminates.

Output and input have backpressure in both directions. Event loop transports are not used for terminals, because they are made for
pipes: a write transport of a terminal may consume its input.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import signal
import struct
import subprocess
import termios
from collections.abc import Awaitable, Callable
from typing import IO

from trainwright.controlplane.apiserver.streaming.sessions import STDERR, STDOUT, CommandRequest
from trainwright.controlplane.node.container import ContainerRun
from trainwright.controlplane.node.container_context import ContainerContext
from trainwright.controlplane.node.supervisor.child_command import ChildCommand, child_command, signal_child

_READ_BYTES = 32 * 1024
_POLL_SECONDS = 0.02
_GRACE_SECONDS = 2.0
"""Time between SIGTERM and SIGKILL after the client has disconnected."""
_DRAIN_SECONDS = 0.5
"""Idle time after the command's exit until output of its background processes is no longer read."""
_END_OF_INPUT = b"\x04"
log = logging.getLogger(__name__)


class ExecSession:
    """Implements `Session`. Start it with `start`."""

    def __init__(self, process: subprocess.Popen[bytes], run: ContainerRun):
        self._process, self._run = process, run
        self._outputs: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(maxsize=4)
        self._readers: list[asyncio.Task[None]] = []
        self._transports: list[asyncio.BaseTransport] = []
        self._stdin: asyncio.StreamWriter | None = None
        self._terminal: Terminal | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._has_output = False

    @classmethod
    async def start(
        cls, argv: list[str], more: dict[str, str], context: ContainerContext, wanted: CommandRequest, run: ContainerRun
    ) -> ExecSession:
        """Start `argv` beside the processes of `run`, with `more` variables. Raises OSError."""
        env, isolated_run = {**context.env, **more}, run.folder if context.is_isolated else None
        with child_command(argv, env, context.cwd, tty=wanted.tty, isolated_run=isolated_run) as command:
            session = await (cls._in_terminal(command, run) if wanted.tty else cls._with_pipes(command, wanted, run))
        session._watcher = asyncio.ensure_future(session._watch())
        return session

    @classmethod
    async def _with_pipes(cls, command: ChildCommand, wanted: CommandRequest, run: ContainerRun) -> ExecSession:
        process = subprocess.Popen(
            command.argv,
            env=command.env,
            pass_fds=command.pass_fds,
            stdin=subprocess.PIPE if wanted.stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE if wanted.stdout else subprocess.DEVNULL,
            stderr=subprocess.PIPE if wanted.stderr else subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        session = cls(process, run)
        if process.stdin is not None:
            loop = asyncio.get_running_loop()
            transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, process.stdin)
            session._transports.append(transport)
            session._stdin = asyncio.StreamWriter(transport, protocol, None, loop)
        for stream, pipe in ((STDOUT, process.stdout), (STDERR, process.stderr)):
            if pipe is not None:
                await session._read_from(stream, pipe)
        return session

    @classmethod
    async def _in_terminal(cls, command: ChildCommand, run: ContainerRun) -> ExecSession:
        master, slave = os.openpty()
        try:
            process = subprocess.Popen(
                command.argv,
                env=command.env,
                pass_fds=command.pass_fds,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
            )
        except OSError:
            os.close(master)
            raise
        finally:
            os.close(slave)
        session = cls(process, run)
        session._terminal = terminal = Terminal(master)
        session._readers.append(asyncio.ensure_future(session._pump(STDOUT, terminal.read)))
        return session

    async def _read_from(self, stream: int, pipe: IO[bytes]) -> None:
        reader = asyncio.StreamReader(_READ_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
        self._transports.append(transport)
        self._readers.append(asyncio.ensure_future(self._pump(stream, lambda: reader.read(_READ_BYTES))))

    async def _pump(self, stream: int, read: Callable[[], Awaitable[bytes]]) -> None:
        while data := await read():
            self._has_output = True
            await self._outputs.put((stream, data))

    async def _watch(self) -> None:
        """Wait for the command and its output to end. Kill it when its container terminates."""
        while self._process.poll() is None:
            if self._run.termination() is not None:
                self._signal(signal.SIGKILL)
            await asyncio.sleep(_POLL_SECONDS)
        reading = set(self._readers)
        while reading:
            self._has_output = False
            _, reading = await asyncio.wait(reading, timeout=_DRAIN_SECONDS)
            if not self._has_output and self._outputs.empty():
                break  # idle background processes hold the pipes open
        for reader in self._readers:
            reader.cancel()
        await self._outputs.put(None)

    async def read(self) -> tuple[int, bytes] | None:
        return await self._outputs.get()

    async def write(self, data: bytes) -> None:
        try:
            if self._terminal is not None:
                await self._terminal.write(data)
            elif self._stdin is not None and not self._stdin.is_closing():
                self._stdin.write(data)
                await self._stdin.drain()
        except OSError as error:  # the command has closed its input, which is not an error
            log.debug("event=exec_input_closed errno=%s", error.errno)

    async def close_stdin(self) -> None:
        if self._terminal is not None:
            await self.write(_END_OF_INPUT)
        elif self._stdin is not None:
            self._stdin.close()

    def resize(self, width: int, height: int) -> None:
        if self._terminal is not None and self._process.poll() is None:
            self._terminal.resize(width, height)

    async def exit_code(self) -> int:
        """Return the exit code, or 128 + n for signal n, like a shell."""
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    async def end(self) -> None:
        self._signal(signal.SIGHUP if self._terminal is not None else signal.SIGTERM)
        await self._wait(_GRACE_SECONDS)
        self._signal(signal.SIGKILL)
        await self._wait(_GRACE_SECONDS)
        if self._watcher is not None:
            self._watcher.cancel()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        for transport in self._transports:
            if not isinstance(transport, asyncio.WriteTransport):
                transport.close()
            elif not transport.is_closing() or transport.get_write_buffer_size():
                transport.abort()  # nobody reads its buffered data any more
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None

    async def _wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self._process.poll() is None and loop.time() < deadline:
            await asyncio.sleep(_POLL_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        signal_child(self._process.pid, number)


class Terminal:
    """Owns its file descriptor. For one event loop; one reader and one writer at a time."""

    def __init__(self, file: int):
        os.set_blocking(file, False)
        self._file = file

    async def read(self) -> bytes:
        """Return output, or `b""` after the last process has closed the terminal."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return os.read(self._file, _READ_BYTES)
            except BlockingIOError:  # nothing to read yet
                await self._until(loop.add_reader, loop.remove_reader)
            except OSError as error:
                if error.errno == errno.EIO:
                    return b""  # how Linux reports that no process has it open
                raise

    async def write(self, data: bytes) -> None:
        """Write input. Raises OSError if all processes have closed the terminal."""
        loop = asyncio.get_running_loop()
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._file, left) :]
            except BlockingIOError:  # its buffer is full until the command reads
                await self._until(loop.add_writer, loop.remove_writer)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def close(self) -> None:
        os.close(self._file)

    async def _until(self, add: Callable[..., None], remove: Callable[[int], bool]) -> None:
        """Wait until the file descriptor is ready."""
        ready = asyncio.Event()
        add(self._file, ready.set)
        try:
            await ready.wait()
        finally:
            remove(self._file)
