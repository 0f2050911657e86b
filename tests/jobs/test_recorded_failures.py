"""TrainJobs that were recorded on a real cluster: what the command line, a component and an Airflow task say of each.

Each recording says itself what must be told. All are replayed as a user would run them, on a virtual clock.
"""

from __future__ import annotations

import functools
import itertools
import re

import pytest
from recorders.recorded_cluster import RecordedCluster, Recording
from recording_archives import recordings_of
from replay import Replayed, replay
from support.rounds import IS_LONG
from support.virtual_time import VirtualClock

from trainwright.api.kinds import TRAINJOB
from trainwright.jobs import Deadlines, TrainJobError, wait_for
from trainwright.jobs.diagnosis.exit_codes import exit_code_of
from trainwright.jobs.wait.job_observer import WaitSettings

CASES = sorted(path.name for path in (recordings_of("failures") / "cases").iterdir())
CALLERS = ("component", "operator", "trigger")
BY_CASE = [(case, by) for number, case in enumerate(CASES) for by in (CALLERS if IS_LONG else (CALLERS[number % 3],))]
"""Callers other than the command line, which replays every case: each case by one of them, in long rounds by all."""
MOMENTS = 8 if IS_LONG else 3
# What the API shows of a reason to wait, as it stands in an event or in a status, and must be said ten seconds later.
REASONS = {
    "claim-missing": 'persistentvolumeclaim "nope" not found',
    "configmap-volume-missing": 'configmap "nope" not found',
    "image-missing": "ErrImagePull",
    "image-never": "ErrImageNeverPull",
    "job-refused": "may not specify more than 1 volume type",
    "kueue-no-queue": "LocalQueue nobody doesn't exist",
    "kueue-too-large": "insufficient quota for cpu",
    "kueue-preempted": "Preempted to accommodate",
    "kueue-waits": "insufficient unused quota",
    "limitrange": "maximum memory usage per Container",
    "node-lost": "Node is not ready|DeletionByTaintManager",
    "evicted-api-restarts": "EvictionByEvictionAPI",
    "pull-secret": "ErrImagePull",
    "quota-pods": "exceeded quota",
    "readiness": "Readiness probe failed",
    "unschedulable-cpu": "Insufficient cpu",
}
SECONDS = 10.5
"""Ten, and what whole seconds of recorded times leave open."""
_PHASES = ("Queued", "Starting", "Running", "Restarting", "Suspended", "Succeeded", "Failed")


@functools.cache
def replayed(case: str, by: str = "cli", **options: object) -> Replayed:
    return replay(recordings_of("failures") / "cases" / case, by, **options)


def phases(case: str) -> list[str]:
    """The phases that were shown, one after another."""
    lines = [line for _, line in replayed(case).lines if not re.match(r"Restarting: (\d+ )?restart", line)]
    shown = [word for line in lines if (word := re.split(r"[: ]", line)[0]) in _PHASES]
    return [word for word, _ in itertools.groupby(shown)]


@pytest.mark.medium
@pytest.mark.parametrize("case", CASES)
def test_the_command_line_reports_each_recorded_job(case: str) -> None:
    told = replayed(case)
    assert not told.problems, f"{told.problems}\n{told.text}"


@pytest.mark.medium
@pytest.mark.parametrize(("case", "by"), BY_CASE)
def test_components_and_operators_report_each_recorded_job(case: str, by: str) -> None:
    told = replayed(case, by)
    assert not told.problems, f"{told.problems}\n{told.text}"


@pytest.mark.parametrize("case", [case for case in CASES if case != "quota-trainjobs"])
def test_a_job_that_runs_is_not_starting_again(case: str) -> None:
    shown = phases(case)
    assert shown.count("Running") <= (2 if case in ("evicted-api-restarts", "jobset-restart", "kueue-preempted") else 1), shown
    assert ("Running", "Starting") not in itertools.pairwise(shown), shown


@pytest.mark.medium
@pytest.mark.parametrize("by", ["cli", pytest.param("trigger", marks=pytest.mark.medium)])
@pytest.mark.parametrize("case", [case for case in REASONS if case in CASES])
def test_why_a_job_waits_is_said_within_ten_seconds(case: str, by: str) -> None:
    recording = Recording(recordings_of("failures") / "cases" / case)
    since = recording.job.at if recording.job else 0.0
    visible = next(
        change.at for change in recording.changes if re.search(REASONS[case], str(change.object)) and change.at >= since
    )
    said = replayed(case, by).said_at(REASONS[case])
    assert said is not None
    assert said - visible <= SECONDS, replayed(case, by).text


@pytest.mark.medium
@pytest.mark.parametrize("case", [case for case in CASES if case != "quota-trainjobs"])
def test_a_wait_that_begins_late_ends_alike(case: str) -> None:
    """Only an eviction through the Eviction API leaves no trace, unless the runtime has a podFailurePolicy."""
    recording = Recording(recordings_of("failures") / "cases" / case)
    assert recording.job is not None
    expected = {recording.case["told"]["exitCode"]} | ({10} if case == "evicted-api" else set())
    for part in range(MOMENTS):
        clock = VirtualClock(recording.epoch(), limit=recording.last + 7200)
        cluster = RecordedCluster(recording, clock, is_created=True)
        with clock.installed():
            clock.jump(recording.job.at + (recording.last + 1 - recording.job.at) * part / (MOMENTS - 1))
            try:
                wait_for(cluster, cluster.get(TRAINJOB, "job", "train"), WaitSettings(deadlines=Deadlines(queue=30, start=30)))
                code = 0
            except TrainJobError as error:
                code = int(exit_code_of(error))
        assert code in expected, part


def test_a_deadline_of_the_client_ends_with_the_last_lines() -> None:
    told = replayed("kueue-waits", run_timeout_seconds=5)
    assert told.exit_code == 22
    message, _, lines = told.text.partition("was Running for more than 5 s")[2].partition("\n")
    assert message.endswith("it keeps running")
    assert lines == "    up"


@pytest.mark.medium
def test_a_lost_node_is_named_while_waiting_and_may_end_the_wait() -> None:
    assert re.search(r"node node-1 has been lost since 2026-11-22T14:44:00Z", replayed("node-lost").text)
    ended = replayed("node-lost", lost_node_timeout_seconds=5)
    assert ended.exit_code == 12
    assert ended.seconds < 70, "the node comes back after 77 s"
    assert "does not end: pod" in ended.text


@pytest.mark.medium
@pytest.mark.parametrize(("case", "by"), [("evicted-api", "component"), ("preempted", "operator"), ("node-lost", "trigger")])
def test_a_disrupted_job_is_resubmitted_within_its_budget(case: str, by: str) -> None:
    told = replayed(case, by, preemption_budget=1)
    assert told.exit_code == 12
    assert "its preemption budget of 1 resubmissions is exhausted" in told.text
    assert [request for _, request in told.requests].count("create TrainJob") == 2


def test_who_deleted_a_pod_and_who_was_stopped_because_of_it() -> None:
    lines = [line for line in replayed("pod-deleted").text.splitlines() if line.startswith("pod ")]
    assert re.match(r"pod job-node-0-0-\w+ .*was deleted at \S+, not by its Job", lines[0])
    assert re.match(r"pod job-node-0-1-\w+ .*was stopped by its Job", lines[1])
