"""Waits as Airflow's triggerer does: a TrainJobTrigger for each job, on one event loop."""

from __future__ import annotations

import asyncio

from protocol import Measured

measured = Measured()
from trainwright.operators import TrainJobTrigger  # noqa: E402


async def wait(job: dict[str, str]) -> None:
    task = {"dag_id": "d", "task_id": job["name"], "run_id": "r", "map_index": -1}
    place = {"namespace": job["namespace"], "name": job["name"], "uid": job["uid"]}
    trigger = TrainJobTrigger(conn_id=None, task=task, settle_seconds=0, **place)
    async for _ in trigger.run():
        measured.end(job["name"])


asyncio.run(measured.wait_for_all(wait))
