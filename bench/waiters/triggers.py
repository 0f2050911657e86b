"""Waits like Airflow's triggerer: a TrainJobTrigger per job, on one event loop."""

from __future__ import annotations

import asyncio
import sys

from protocol import Reporter

reporter = Reporter()
from trainwright.operators import TrainJobTrigger  # noqa: E402


async def wait(job: dict[str, str]) -> None:
    task = {"dag_id": "d", "task_id": job["name"], "run_id": "r", "map_index": -1}
    place = {"namespace": job["namespace"], "name": job["name"], "uid": job["uid"]}
    shown = {"logs": "0", "lease_seconds": 1800} if sys.argv[1] == "defaults" else {}
    trigger = TrainJobTrigger(conn_id=None, task=task, min_defer_seconds=0, **place, **shown)
    async for _ in trigger.run():
        reporter.end(job["name"])


asyncio.run(reporter.wait_for_all(wait))
