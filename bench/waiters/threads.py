"""Waits as workers do: a thread for each job, in `wait_for`. `alone` gives each a watch of its own, which is the peer."""

from __future__ import annotations

import sys
import threading
from typing import Any

from protocol import Measured

measured = Measured()
from trainwright.cluster import connect  # noqa: E402
from trainwright.jobs import wait_for, watching  # noqa: E402

if "alone" in sys.argv:
    watching._Together = watching._Alone  # type: ignore[assignment,misc]
threading.stack_size(256 * 1024)


def wait(cluster: Any, job: dict[str, str], begun: threading.Semaphore) -> None:
    known = {"metadata": job, "spec": {}}
    wait_for(cluster, known, tell=lambda _: begun.release())
    measured.end(job["name"])


def main() -> None:
    cluster, begun = connect(), threading.Semaphore(0)
    threads = [threading.Thread(target=wait, args=(cluster, job, begun), daemon=True) for job in measured.jobs]
    for thread in threads:
        thread.start()
    for _ in threads:
        begun.acquire()
    measured.tell("begun")
    threading.Thread(target=measured.serve, daemon=True).start()
    for thread in threads:
        thread.join()
    measured.tell("ended", ended=measured.ended)


main()
