"""The protocol between a waiting process and `bench/waiting.py`: one JSON document per line, on the original standard output.

Standard library only, because Trainwright is not installed in the environment of the `cncf` baseline.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any


class Reporter:
    """Created before heavy imports, so that their output does not mix with the messages."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        os.dup2(devnull, 2)
        self.jobs: list[dict[str, str]] = json.loads(sys.stdin.readline())["jobs"]
        self.ended: dict[str, float] = {}

    def send(self, what: str, **more: Any) -> None:
        print(json.dumps({"what": what, **usage(), **more}), file=self._out, flush=True)

    def end(self, name: str) -> None:
        """Record that the wait for that job has returned."""
        self.ended[name] = time.monotonic()

    def serve(self) -> None:
        """Send the resource usage whenever a line is read; runs in its own thread."""
        for _ in sys.stdin:
            self.send("state")

    async def wait_for_all(self, wait: Callable[[dict[str, str]], Awaitable[None]]) -> None:
        """Wait for all jobs on one event loop."""
        waits = [asyncio.ensure_future(wait(self.jobs.pop())) for _ in range(len(self.jobs))]
        await asyncio.sleep(1)
        self.send("started")
        threading.Thread(target=self.serve, daemon=True).start()
        await asyncio.gather(*waits)
        self.send("ended", ended=self.ended)


def usage() -> dict[str, float]:
    """CPU time in seconds, current and peak resident memory in MiB."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return {"cpu_s": used.ru_utime + used.ru_stime, "rss_mib": pages * 4096 / 2**20, "peak_mib": used.ru_maxrss / 1024}
