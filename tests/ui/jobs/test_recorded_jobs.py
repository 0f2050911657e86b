"""The page shows what a real cluster recorded: rows, pods, timeline and reasons of failing TrainJobs, at every moment of theirs."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from recorders.recorded_cluster import RecordedCluster, Recording
from recording_archives import recordings_of
from support.virtual_time import VirtualClock

from trainwright.api.errors import NotFound
from trainwright.api.kinds import JOBSET, TRAINJOB
from trainwright.api.objects import uid_of
from trainwright.jobs.state.pods import pods_of
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.jobs.job_view import JobState
from trainwright.ui.jobs.row import RuntimeNodes

CASES = sorted(path.name for path in (recordings_of("failures") / "cases").iterdir())
MOMENTS = 12


def states_of(case: str) -> list[dict[str, Any]]:
    """The state of a recorded job at several moments, the last one after its end."""
    recording = Recording(recordings_of("failures") / "cases" / case)
    if recording.job is None:
        pytest.skip("no TrainJob was admitted: there is nothing to show")
    clock = VirtualClock(recording.epoch(), limit=recording.last + 7200)
    cluster = RecordedCluster(recording, clock, is_created=True)
    client = JobsClient.of(cluster)
    states: list[dict[str, Any]] = []
    with clock.installed():
        state: JobState | None = None
        for part in range(MOMENTS):
            clock.jump(recording.job.at + (recording.last + 5 - recording.job.at) * part / (MOMENTS - 1))
            try:
                trainjob = client.get(TRAINJOB, "job", "train")
            except NotFound:
                break
            state = state or JobState(uid_of(trainjob), client, RuntimeNodes(client))
            state.metrics.observe(trainjob)
            states.append(state.show(trainjob, _jobset(client), pods_of(client, trainjob)))
    return states


def _jobset(client: JobsClient) -> dict[str, Any] | None:
    try:
        return client.get(JOBSET, "job", "train")
    except NotFound:
        return None


@pytest.mark.parametrize("case", CASES)
def test_every_moment_is_shown_with_a_timeline_in_order(case: str) -> None:
    for state in states_of(case):
        orjson.dumps(state)
        timeline = state["timeline"]
        for lane in timeline["lanes"]:
            for span in lane["spans"]:
                assert span["since"], lane
                assert not span["until"] or span["since"] <= span["until"], lane
        spans = timeline["lanes"][0]["spans"]
        assert [span["since"] for span in spans] == sorted(span["since"] for span in spans)
        still_open = [span for span in spans if not span["until"]]
        assert len(still_open) == (0 if timeline["until"] else 1), spans
        assert not still_open or still_open[0] is spans[-1]


@pytest.mark.parametrize("case", CASES)
def test_final_phase_and_reason_are_those_of_the_job(case: str) -> None:
    recording = Recording(recordings_of("failures") / "cases" / case)
    states = states_of(case)
    row, timeline = states[-1]["row"], states[-1]["timeline"]
    if row["phase"] == "Failed":
        assert row["reason"]
        assert timeline["lanes"][0]["spans"][-1]["kind"] == "failed"
    if row["phase"] == "Succeeded":
        assert recording.case["told"]["exitCode"] == 0
        assert timeline["lanes"][0]["spans"][-1]["kind"] == "succeeded"


def test_exit_codes_and_reasons_of_restarted_containers_stay_visible() -> None:
    runs = [
        run
        for pod in states_of("oom-never")[-1]["pods"]
        for container in pod["containers"]
        for run in container["runs"]
        if run["code"]
    ]
    assert {(run["code"], run["reason"]) for run in runs} >= {(137, "OOMKilled")}


@pytest.mark.parametrize(
    ("case", "pattern"),
    [
        ("claim-missing", 'persistentvolumeclaim "nope" not found'),
        ("image-missing", "ErrImagePull|ImagePullBackOff"),
        ("unschedulable-cpu", "Insufficient cpu"),
        ("quota-pods", "exceeded quota"),
    ],
)
def test_waiting_jobs_say_why(case: str, pattern: str) -> None:
    if case not in CASES:
        pytest.skip("this recording is kept back")
    texts = [state["waiting"]["text"] for state in states_of(case) if state["waiting"]]
    assert any(re.search(pattern, text) for text in texts), texts
