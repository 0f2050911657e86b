"""The page on a cluster without Trainer: TrainJobs are JobSets there, and are listed, followed and shown the same."""

from __future__ import annotations

import asyncio
from typing import Any

from support.jobset_mode_cluster import Inner, cluster, entry, inner, set_status, two_node_trainjob  # noqa: F401  fixtures

from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.jobset_mode import JobSetCluster
from trainwright.ui.jobs.job_feed import JobFeed
from trainwright.ui.jobs.job_view import JobView


def test_jobs_are_listed_and_their_ends_follow(cluster: JobSetCluster, inner: Inner) -> None:  # noqa: F811  fixtures
    cluster.create(two_node_trainjob())
    feed = JobFeed(JobsClient.of(cluster), "default")

    async def look() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        updates = feed.updates()
        async for update in updates:
            found.append(update)
            if update["type"] == "rows":
                await asyncio.to_thread(set_status, inner, conditions=[entry("Completed")], terminalState="Completed")
            if update["type"] == "changes":
                break
        await updates.aclose()
        return found

    rows, changes = asyncio.run(asyncio.wait_for(look(), 20))
    feed.stop()
    assert [(row["name"], row["nodes"], row["phase"]) for row in rows["rows"]] == [("demo", 2, "Starting")]
    assert [row["phase"] for row in changes["rows"]] == ["Succeeded"]


def test_one_job_is_shown_with_its_end(cluster: JobSetCluster, inner: Inner) -> None:  # noqa: F811  fixtures
    cluster.create(two_node_trainjob())
    set_status(inner, conditions=[entry("Failed", reason="FailedJobs")], terminalState="Failed")
    view = JobView(JobsClient.of(cluster), "default", "demo")

    async def look() -> dict[str, Any]:
        updates = view.updates()
        found = await anext(updates)
        await updates.aclose()
        return found

    shown = asyncio.run(asyncio.wait_for(look(), 20))
    report = view.report()
    view.stop()
    assert (shown["row"]["phase"], shown["timeline"]["lanes"][0]["spans"][-1]["kind"]) == ("Failed", "failed")
    assert "FailedJobs" in report["text"]
