"""Waits like workers: a thread per job, in `wait_for`. With `alone`, the baseline, each thread has its own watch."""

from __future__ import annotations

import sys
import threading
from typing import Any

from protocol import Reporter

reporter = Reporter()
from trainwright.cluster import connect  # noqa: E402
from trainwright.jobs import wait_for  # noqa: E402
from trainwright.jobs.wait import job_watch  # noqa: E402

if "alone" in sys.argv:
    job_watch._SharedWatch = job_watch._SingleWatch  # type: ignore[assignment,misc]
threading.stack_size(256 * 1024)


def wait(cluster: Any, job: dict[str, str], started: threading.Semaphore) -> None:
    known = {"metadata": job, "spec": {}}
    wait_for(cluster, known, on_event=lambda _: started.release())
    reporter.end(job["name"])


def main() -> None:
    cluster, started = connect(), threading.Semaphore(0)
    threads = [threading.Thread(target=wait, args=(cluster, job, started), daemon=True) for job in reporter.jobs]
    for thread in threads:
        thread.start()
    for _ in threads:
        started.acquire()
    reporter.send("started")
    threading.Thread(target=reporter.serve, daemon=True).start()
    for thread in threads:
        thread.join()
    reporter.send("ended", ended=reporter.ended)


main()
