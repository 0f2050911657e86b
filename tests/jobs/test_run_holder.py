"""Who holds the folder of a run: the first owner, whatever became of its job; two at the same moment never both."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from factories import train_request, trainjob
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import is_deleting, name_of
from trainwright.cluster.protocol import DelegatingCluster, Listing
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt
from trainwright.jobs.diagnosis.errors import RunFolderTaken
from trainwright.jobs.submit.creation import resolve_holder_conflict

WORKSPACE = "pvc://claim/team"
ONE, OTHER = Identity("airflow/dag", "run", "train"), Identity("kfp", "run", "train")


def submit(cluster: Any, identity: Identity, *, workspace: str = WORKSPACE, **more: Any) -> Any:
    request = train_request(runtime="torch-distributed", command=["true"], workspace=workspace)
    return submit_or_adopt(Submission(cluster, request, identity, "default"), **more)


def jobs(cluster: EmbeddedCluster) -> list[str]:
    return [name_of(job) for job in cluster.list(TRAINJOB, "default").items if not is_deleting(job)]


@pytest.mark.parametrize("condition", [None, "Complete", "Failed", "Suspended"])
def test_a_second_owner_is_refused_with_the_name_of_the_first(
    cluster: EmbeddedCluster, set_status: Callable[..., Any], condition: str | None
) -> None:
    first = submit(cluster, ONE)
    if condition:
        set_status(first.trainjob, condition)
    with pytest.raises(RunFolderTaken) as raised:
        submit(cluster, OTHER)
    assert str(raised.value) == (
        f"run_id: the folder pvc://claim/team/runs/run is in use by the TrainJob {first.name!r} of airflow/dag/run/train; "
        "choose another run_id or workspace, or delete that job to take over its checkpoints"
    )
    assert not raised.value.retryable
    assert jobs(cluster) == [first.name]


def test_the_first_owner_goes_on(cluster: EmbeddedCluster, set_status: Callable[..., Any]) -> None:
    first = submit(cluster, ONE)
    assert submit(cluster, ONE).adopted
    set_status(first.trainjob, "Failed")
    assert submit(cluster, ONE).attempt == 2
    with pytest.raises(RunFolderTaken):
        submit(cluster, OTHER)


@pytest.mark.parametrize(
    ("identity", "workspace"),
    [
        (replace(OTHER, run="run2"), WORKSPACE),
        (replace(OTHER, run="Run"), WORKSPACE),
        (OTHER, "pvc://other/team"),
        (OTHER, "pvc://claim/other"),
        (OTHER, "pvc://claim"),
        (OTHER, ""),
        (replace(OTHER, map_index=0), WORKSPACE),
        (replace(OTHER, subfolder="eval"), WORKSPACE),
    ],
)
def test_other_folders_are_free(cluster: EmbeddedCluster, identity: Identity, workspace: str) -> None:
    submit(cluster, ONE)
    submit(cluster, identity, workspace=workspace)
    assert len(jobs(cluster)) == 2


def test_a_slash_at_the_end_is_the_same_folder(cluster: EmbeddedCluster) -> None:
    submit(cluster, ONE)
    with pytest.raises(RunFolderTaken):
        submit(cluster, OTHER, workspace=f"{WORKSPACE}/")


class Meeting(DelegatingCluster):
    """A cluster whose lists of TrainJobs of a run wait for each other: both find nothing, or both find both."""

    def __init__(self, cluster: EmbeddedCluster, barrier: threading.Barrier, at: int):
        super().__init__(cluster)
        self._barrier, self._at, self._lists = barrier, at, 0

    def list(self, kind: Any, namespace: str | None = None, **more: Any) -> Listing:
        found = self._cluster.list(kind, namespace, **more)
        if kind == TRAINJOB:
            self._lists += 1
            if self._lists == self._at:
                self._barrier.wait(10)
        return found


@pytest.mark.parametrize("at", [1, 2])
def test_of_two_at_the_same_moment_at_most_one_remains(cluster: EmbeddedCluster, at: int) -> None:
    """The first list looks for jobs of the step, the second for who holds the folder."""
    barrier = threading.Barrier(2)

    def try_once(identity: Identity) -> Any:
        try:
            return submit(Meeting(cluster, barrier, at), identity)
        except RunFolderTaken as error:
            return error

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(try_once, (ONE, OTHER))
    refused = [one for one in (first, second) if isinstance(one, RunFolderTaken)]
    assert refused
    assert len(jobs(cluster)) == 2 - len(refused)
    withdrawn = [error for error in refused if "both were submitted at the same time" in str(error)]
    assert all(error.retryable for error in withdrawn)


class Board:
    """TrainJobs with times, as `resolve_holder_conflict` sees them."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}

    def put(self, owner: str, time: int) -> dict[str, Any]:
        annotations = {"trainwright.dev/owner": owner, "trainwright.dev/run-folder": "pvc://claim/runs/run"}
        metadata = {"uid": owner, "creationTimestamp": f"2026-01-01T00:00:{time:02d}Z", "annotations": annotations}
        self.jobs[owner] = trainjob(owner, labels={"trainwright.dev/run": "run"}, metadata=metadata)
        return self.jobs[owner]

    def list(self, _kind: Any, _namespace: str, **_selectors: str) -> Listing:
        return Listing([dict(job) for job in self.jobs.values()], "1")

    def delete(self, _kind: Any, name: str, *_more: Any, uid: str, **_options: Any) -> None:
        assert uid == name
        del self.jobs[name]


@given(order=st.permutations([0, 0, 1, 1, 2, 2]), jobs_in_a_second=st.integers(1, 3))
def test_in_any_order_at_most_one_of_them_trains(order: list[int], jobs_in_a_second: int) -> None:
    """Each has seen nobody before it creates its job, then looks; times are whole seconds, in the order of creation."""
    board, created, remaining = Board(), dict[str, dict[str, Any]](), set[str]()
    for identity in (Identity("board", "run", str(number)) for number in order):
        owner = str(identity)
        if owner not in created:
            created[owner] = board.put(owner, len(created) // jobs_in_a_second)
            continue
        try:
            resolve_holder_conflict(board, created[owner], identity)  # type: ignore[arg-type]
        except RunFolderTaken as error:
            withdrawn = error.retryable
        else:
            withdrawn = False
            remaining.add(owner)
        assert withdrawn is (owner not in board.jobs)
    assert len(remaining) <= 1
    assert set(board.jobs) == remaining
