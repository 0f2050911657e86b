"""Tests the live view of one job: it follows changes, tells a deletion, and stops when nobody looks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from factories import trainjob
from support.waiting import eventually

from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import uid_of
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.jobs.job_view import JobView


@pytest.fixture
def view(cluster: EmbeddedCluster) -> Iterator[JobView]:
    made = JobView(JobsClient.of(cluster), "default", "demo")
    yield made
    made.stop()


def seen(view: JobView, act: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """The updates of the job `demo` until `act`, which may change it, says that it was the last."""

    async def look() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        updates = view.updates()
        async for update in updates:
            if update["type"] != "beat":
                found.append(update)
                if await asyncio.to_thread(act, update):
                    break
        await updates.aclose()
        return found

    return asyncio.run(asyncio.wait_for(look(), 20))


def report(cluster: EmbeddedCluster, step: int, loss: str) -> None:
    metrics = [{"name": "loss", "value": loss}, {"name": "step", "value": str(step)}]
    status = {
        "status": {
            "trainerStatus": {"progressPercentage": step, "metrics": metrics, "lastUpdatedTime": f"2026-11-01T00:00:{step:02d}Z"}
        }
    }
    cluster.patch(TRAINJOB, "demo", status, "default", subresource="status")


def test_reports_become_points_of_curves(view: JobView, cluster: EmbeddedCluster) -> None:
    cluster.create(trainjob("demo"))
    steps = iter([(1, "2.5"), (2, "nan"), (3, "1.5")])

    def act(update: dict[str, Any]) -> bool:
        if (following := next(steps, None)) is not None:
            report(cluster, *following)
        return len(update["live"]["points"]) >= 2

    last = seen(view, act)[-1]
    assert last["live"] == {"axis": "step", "points": [(1, {"loss": 2.5}), (3, {"loss": 1.5})]}
    assert last["row"]["percent"] == 3


def test_deleted_job_keeps_its_last_state(view: JobView, cluster: EmbeddedCluster) -> None:
    cluster.create(trainjob("demo"))

    def act(update: dict[str, Any]) -> bool:
        if update["type"] == "job":
            cluster.delete(TRAINJOB, "demo", "default")
        return bool(update["type"] == "absent")

    last = seen(view, act)[-1]
    assert (last["type"], last["row"]["name"]) == ("absent", "demo")


def test_unknown_job_is_absent(view: JobView, cluster: EmbeddedCluster) -> None:
    assert seen(view, lambda _: True) == [{"type": "absent"}]


def test_job_of_the_same_name_starts_a_new_history(view: JobView, cluster: EmbeddedCluster) -> None:
    first = cluster.create(trainjob("demo"))
    report(cluster, 1, "2.5")
    replaced: list[str] = []

    def act(update: dict[str, Any]) -> bool:
        if not replaced and update["live"]["points"]:
            cluster.delete(TRAINJOB, "demo", "default")
            replaced.append(uid_of(cluster.create(trainjob("demo"))))
        return bool(replaced) and update.get("row", {}).get("uid") == replaced[0]

    last = seen(view, act)[-1]
    assert last["row"]["uid"] != uid_of(first)
    assert last["live"]["points"] == []


def test_thread_of_a_view_ends_with_it(view: JobView, cluster: EmbeddedCluster) -> None:
    cluster.create(trainjob("demo"))
    seen(view, lambda _: True)
    view.stop()
    eventually(lambda: not any(thread.name == "page-job-view" for thread in threading.enumerate()), 10, "the thread to end")


def test_report_is_read_without_a_subscriber(view: JobView, cluster: EmbeddedCluster) -> None:
    cluster.create(trainjob("demo"))
    shown = view.report()
    assert not shown["failed"]
    assert "demo" in shown["text"]
