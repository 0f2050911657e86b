"""The start deadline counts until every pod of a training has started once, and its error says what is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from recorders.partial_starts import partial_start, replaced_after_start
from recorders.recorded_cluster import RecordedCluster, Recording
from replay import replay
from support.virtual_time import VirtualClock

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import JOBSET, POD, TRAINJOB, Kind
from trainwright.jobs import Deadlines, RunTimeout, StartTimeout, wait_for
from trainwright.jobs.wait.job_observer import WaitSettings

BY = ["cli", *(pytest.param(by, marks=pytest.mark.medium) for by in ("component", "operator", "trigger"))]


@pytest.mark.parametrize("by", BY)
def test_quota_that_admits_one_pod_of_two_expires_the_start_deadline(tmp_path: Path, by: str) -> None:
    ended = replay(partial_start(tmp_path / "case", kept_away_by="quota-pods"), by)
    assert ended.exit_code == 21, ended.text
    assert 30 <= ended.seconds < 50, "30 s, and up to 10 s in which a step waits for the pods to end"
    reason = r"Job \S+-node-1: FailedCreate: Error creating: pods .* exceeded quota"
    assert re.search(rf"after 30 s 1 of 2 pods have not started: node-1-0; last seen: {reason}", ended.text), ended.text
    said = [line for _, line in ended.lines if line.startswith("Running: ")]
    assert len(said) == 1, ended.text
    assert re.match(rf"Running: 1 of 2 pods have not started: node-1-0; {reason}", said[0])


@pytest.mark.medium
@pytest.mark.parametrize("by", ["cli", pytest.param("trigger", marks=pytest.mark.medium)])
def test_start_deadline_ends_once_all_pods_have_started(tmp_path: Path, by: str) -> None:
    """A pod that is replaced afterwards may wait for a node for longer."""
    ended = replay(replaced_after_start(tmp_path / "case"), by)
    assert ended.exit_code == 0, ended.text
    assert ended.said_at("Insufficient cpu") is not None


def awaited(cluster: RecordedCluster, clock: VirtualClock, at: float, **deadlines: float) -> None:
    """Wait for the job of a recording from `at` on."""
    with clock.installed():
        clock.jump(at)
        wait_for(cluster, cluster.get(TRAINJOB, "job", "train"), WaitSettings(deadlines=Deadlines(**deadlines)))


def test_wait_that_begins_late_counts_the_missing_pod(tmp_path: Path) -> None:
    recording = Recording(partial_start(tmp_path / "case", kept_away_by="quota-pods"))
    clock = VirtualClock(recording.epoch(), limit=1000)
    with pytest.raises(StartTimeout, match="1 of 2 pods have not started: node-1-0"):
        awaited(RecordedCluster(recording, clock, is_created=True), clock, 500, start=30, run=300)
    assert 530 <= clock.now < 545


class Restricted(RecordedCluster):
    """A cluster whose client may not read one kind."""

    def __init__(self, kind: Kind, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._kind = kind

    def get(self, kind: Kind, *arguments: Any, **options: Any) -> Any:
        if kind == self._kind:
            raise Forbidden(f"{kind.plural} is forbidden")
        return super().get(kind, *arguments, **options)

    def list(self, kind: Kind, *arguments: Any, **options: Any) -> Any:
        if kind == self._kind:
            raise Forbidden(f"{kind.plural} is forbidden")
        return super().list(kind, *arguments, **options)


@pytest.mark.parametrize("kind", [POD, JOBSET], ids=lambda kind: kind.plural)
def test_without_permission_the_phase_decides(tmp_path: Path, kind: Kind) -> None:
    recording = Recording(partial_start(tmp_path / "case", kept_away_by="quota-pods"))
    clock = VirtualClock(recording.epoch(), limit=1000)
    with pytest.raises(RunTimeout):
        awaited(Restricted(kind, recording, clock, is_created=True), clock, 2, start=30, run=100)
    assert clock.now >= 100
