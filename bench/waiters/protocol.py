"""How a waiting process tells `bench/waiting.py` of itself: one JSON document a line, on what was standard output when it began.

Standard library only: the peer's environment has nothing of ours.
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


class Measured:
    """Begun before anything heavy is imported, so that what is printed on the way goes elsewhere."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        os.dup2(devnull, 2)
        self.jobs: list[dict[str, str]] = json.loads(sys.stdin.readline())["jobs"]
        self.ended: dict[str, float] = {}

    def tell(self, what: str, **more: Any) -> None:
        print(json.dumps({"what": what, **usage(), **more}), file=self._out, flush=True)

    def end(self, name: str) -> None:
        """The wait for that job has returned."""
        self.ended[name] = time.monotonic()

    def serve(self) -> None:
        """Tell of itself whenever it is asked; in a thread of its own."""
        for _ in sys.stdin:
            self.tell("state")

    async def wait_for_all(self, wait: Callable[[dict[str, str]], Awaitable[None]]) -> None:
        """Every job on one event loop, until all of them have ended."""
        waits = [asyncio.ensure_future(wait(self.jobs.pop())) for _ in range(len(self.jobs))]
        await asyncio.sleep(1)
        self.tell("begun")
        threading.Thread(target=self.serve, daemon=True).start()
        await asyncio.gather(*waits)
        self.tell("ended", ended=self.ended)


def usage() -> dict[str, float]:
    """Seconds of processor time, resident memory now and at most (MiB)."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return {"cpu_s": used.ru_utime + used.ru_stime, "rss_mib": pages * 4096 / 2**20, "peak_mib": used.ru_maxrss / 1024}
