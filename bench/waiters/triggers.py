"""Waits as Airflow's triggerer does: a TrainJobTrigger for each job, on one event loop."""

from __future__ import annotations

import asyncio
import threading

from protocol import Measured

measured = Measured()
from trainwright.operators import TrainJobTrigger  # noqa: E402


async def wait(job: dict[str, str]) -> None:
    task = {"dag_id": "d", "task_id": job["name"], "run_id": "r", "map_index": -1}
    place = {"namespace": job["namespace"], "name": job["name"], "uid": job["uid"]}
    trigger = TrainJobTrigger(conn_id=None, task=task, settle_seconds=0, **place)
    async for _ in trigger.run():
        measured.end(job["name"])


async def main() -> None:
    waits = [asyncio.ensure_future(wait(measured.jobs.pop())) for _ in range(len(measured.jobs))]
    await asyncio.sleep(1)
    measured.tell("begun")
    threading.Thread(target=measured.serve, daemon=True).start()
    await asyncio.gather(*waits)
    measured.tell("ended", ended=measured.ended)


asyncio.run(main())
