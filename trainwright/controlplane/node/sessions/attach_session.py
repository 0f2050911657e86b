"""An attach session: streams a container's output from now on, with stdout and stderr separate."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import anyio
from anyio.to_thread import run_sync

from trainwright.controlplane.apiserver.streaming.sessions import STDERR, STDOUT
from trainwright.controlplane.node.container import ContainerRun
from trainwright.controlplane.node.container_logs import entries, read_blocks, tail_position

_READER_THREADS = anyio.CapacityLimiter(64)
"""Maximum number of threads that poll for output at the same time; each poll is short."""


class AttachSession:
    """Implements `Session`. Input is ignored: containers have no standard input here."""

    def __init__(self, run: ContainerRun):
        self._blocks: Iterator[bytes] = read_blocks(run.log, tail_position(run.log, 0), lambda: run.termination() is not None)
        self._parts: deque[tuple[int, bytes]] = deque()

    async def read(self) -> tuple[int, bytes] | None:
        while not self._parts:
            block = await run_sync(next, self._blocks, None, limiter=_READER_THREADS)
            if block is None:
                return None
            self._parts.extend(_parts(block))
        return self._parts.popleft()

    async def write(self, data: bytes) -> None:
        pass

    async def close_stdin(self) -> None:
        pass

    def resize(self, width: int, height: int) -> None:
        pass

    async def exit_code(self) -> int:
        return 0

    async def end(self) -> None:
        pass


def _parts(block: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield stream number and text, with consecutive entries of the same stream joined."""
    stream, texts = STDOUT, list[bytes]()
    for _, name, text in entries(block):
        number = STDERR if name == b"stderr" else STDOUT
        if number != stream and texts:
            yield stream, b"".join(texts)
            texts = []
        stream = number
        texts.append(text)
    if texts:
        yield stream, b"".join(texts)
