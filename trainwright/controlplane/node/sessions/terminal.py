"""The master side of a pseudo-terminal: non-blocking reads and writes with backpressure.

Event loop transports are not used, because they are made for pipes: a write transport of a terminal may consume its input.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import struct
import termios
from collections.abc import Callable

_READ_BYTES = 32 * 1024


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
            except BlockingIOError:
                await self._until(loop.add_reader, loop.remove_reader)
            except OSError as error:
                if error.errno == errno.EIO:
                    return b""
                raise

    async def write(self, data: bytes) -> None:
        """Write input. Raises OSError if all processes have closed the terminal."""
        loop = asyncio.get_running_loop()
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._file, left) :]
            except BlockingIOError:
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
