"""Following logs: pods that start later, connections that break, repeat or go away, containers that start anew, budgets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.scripted_logs import Log, WithLogs, stamp
from support.waiting import eventually

from trainwright.api.errors import BadRequest, NotFound, ServiceUnavailable
from trainwright.api.kinds import POD
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs.logs import container_log
from trainwright.jobs.logs import follow_logs as module
from trainwright.jobs.logs.container_log import ContainerLog
from trainwright.jobs.logs.follow_logs import follow_logs
from trainwright.jobs.logs.log_options import Budget, LogLine, LogSelector
from trainwright.jobs.logs.read_logs import read_logs, source_of

Job = dict[str, Any]
EVERY = LogSelector(rank=None)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_log, "POLL_SECONDS", 0.02)


@pytest.fixture
def ended(job: Job, set_status: Any, add_pod: Any) -> Job:
    """A job that is complete, with the pod of rank 0."""
    add_pod(job, 0, phase="Succeeded")
    set_status(job, "Complete")
    return job


def texts(lines: Iterator[LogLine]) -> list[str]:
    return [line.text for line in lines]


def gathered(lines: Iterator[LogLine]) -> tuple[list[str], threading.Thread]:
    """The texts as they come, and the thread that takes them."""
    seen: list[str] = []

    def take() -> None:
        for line in lines:
            seen.append(line.text)

    reader = threading.Thread(target=take, daemon=True)
    reader.start()
    return seen, reader


def test_one_rank_or_all(cluster: EmbeddedCluster, job: Job, add_pod: Any) -> None:
    for index in (0, 1):
        add_pod(job, index, phase="Running")
    add_pod(job, 2, phase="Pending")
    source: Any = WithLogs(cluster, Log("a", "b"), Log("c\r", end=""), BadRequest("not started"))
    assert list(read_logs(source, job)) == [LogLine("node-0-0", "a", stamp(0)), LogLine("node-0-0", "b", stamp(1))]
    assert [(line.source, line.text) for line in read_logs(source, job, EVERY)] == [
        ("node-0-0", "a"),
        ("node-0-0", "b"),
        ("node-0-1", "c\r"),
    ]
    assert texts(read_logs(source, job, LogSelector(rank=1, tail=1))) == ["c\r"]
    assert source.asked[-1]["tail_lines"] == 1
    assert texts(read_logs(source, job, LogSelector(since="1970-01-01T00:00:01Z"))) == []
    with pytest.raises(BadRequest, match="not started"):
        list(read_logs(source, job, LogSelector(rank=2)))
    with pytest.raises(NotFound, match=r"no pods of the step 'launcher' and rank 0 \(steps with pods: node\)"):
        list(read_logs(source, job, LogSelector("launcher")))


@pytest.mark.parametrize(
    ("selector", "worker_only", "found"),
    [
        (LogSelector(), False, ["launcher-0-0"]),
        (LogSelector(), True, []),  # the launcher starts later
        (EVERY, False, ["node-0-0", "node-0-1", "launcher-0-0"]),
        (LogSelector("node", 1), False, ["node-0-1"]),
        (LogSelector(rank=1), False, []),
    ],
)
def test_the_log_of_an_mpi_job_is_that_of_its_launcher(selector: LogSelector, worker_only: bool, found: list[str]) -> None:
    places = [("node", 0), ("node", 1), *([] if worker_only else [("launcher", 0)])]
    pods = [
        {
            "metadata": {
                "labels": {"jobset.sigs.k8s.io/replicatedjob-name": step, "batch.kubernetes.io/job-completion-index": str(index)}
            },
            "spec": {"volumes": [{"name": "mpi-ssh-auth"}]},
        }
        for step, index in places
    ]
    assert [source_of(pod) for pod in selector.of(pods)] == found


LINES = tuple(f"line {number}" for number in range(12))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(-1, 500), max_size=4), st.sampled_from(["\n", ""]), st.sampled_from([None, 12, 3]))
def test_every_line_comes_once_wherever_the_connection_breaks(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, cuts: list[int], end: str, tail: int | None
) -> None:
    monkeypatch.setattr(container_log, "POLL_SECONDS", 0)
    pod = {
        "metadata": {"name": "x-node-0-0-a", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "node"}]},
        "status": {"phase": "Succeeded"},
    }
    source: Any = WithLogs(cluster, Log(*LINES, end=end, cuts=tuple(cuts)))
    source.get = lambda *_: pod
    followed = ContainerLog(source, pod, "node", tail=tail).follow()
    assert [line for _, line in followed] == list(LINES[-(tail or 12) :])


def test_a_container_that_starts_anew_loses_no_last_words(
    cluster: EmbeddedCluster, job: Job, add_pod: Any, set_status: Any
) -> None:
    def status(restarts: int, phase: str = "Running") -> dict[str, Any]:
        return {"phase": phase, "containerStatuses": [{"name": "node", "restartCount": restarts}]}

    pod = add_pod(job, 0, phase="Running")
    first = Log("a", "b")
    first.until.clear()
    logs = [first]
    source: Any = WithLogs(cluster, first)
    source._logs = logs
    seen, reader = gathered(follow_logs(source, job))
    eventually(lambda: seen == ["a", "b"])
    anew = Log("a", "b", "last words", "anew")
    anew.entries = anew.entries[3:]
    anew.before = Log("a", "b", "last words")
    logs[0] = anew
    cluster.patch(POD, pod["metadata"]["name"], {"status": status(1)}, "default", subresource="status")
    first.until.set()
    eventually(lambda: "anew" in seen)
    anew.before = None
    cluster.patch(POD, pod["metadata"]["name"], {"status": status(3, "Failed")}, "default", subresource="status")
    set_status(job, "Failed")
    reader.join(10)
    assert seen[:4] == ["a", "b", "last words", "anew"]
    assert "started 2 times in between" in seen[4]
    assert len(seen) == 5


def test_a_pod_that_takes_the_place_of_another_is_followed_too(
    cluster: EmbeddedCluster, job: Job, add_pod: Any, set_status: Any
) -> None:
    pod = add_pod(job, 0, phase="Running")
    source: Any = WithLogs(cluster, Log("first"))
    source._logs = logs = [Log("first")]
    seen, reader = gathered(follow_logs(source, job))
    eventually(lambda: seen == ["first"])
    cluster.delete(POD, pod["metadata"]["name"], "default", grace_period_seconds=0)
    logs[0] = Log("second")
    add_pod(job, 0, phase="Succeeded")
    eventually(lambda: seen == ["first", "second"])
    set_status(job, "Complete")
    reader.join(10)
    assert not reader.is_alive()


def test_a_log_that_stays_away_says_so(cluster: EmbeddedCluster, ended: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_log, "MAX_LOST_CONNECTIONS", 2)
    source: Any = WithLogs(cluster, Log("a", cuts=(-1, -1, -1)))
    assert texts(follow_logs(source, ended)) == ["(the connection to this log was lost: the connection broke)"]


def test_a_cluster_that_is_away_for_a_moment_does_not_end_it_and_for_long_does(
    cluster: EmbeddedCluster, ended: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_log, "MAX_LOST_CONNECTIONS", 3)
    source: Any = WithLogs(cluster, Log("a"))
    source.lost = 3
    assert texts(follow_logs(source, ended)) == ["a"]
    source.lost = 4
    with pytest.raises(ServiceUnavailable, match="down"):
        list(follow_logs(source, ended))


def test_readers_end_when_nobody_listens_any_more(cluster: EmbeddedCluster, ended: Job) -> None:
    before = set(threading.enumerate())
    source: Any = WithLogs(cluster, Log(*["x"] * 100))
    lines: Any = follow_logs(source, ended, budget=Budget(pending_lines=1))
    assert next(lines).text == "x"
    (reader,) = set(threading.enumerate()) - before
    lines.close()
    reader.join(10)
    assert not reader.is_alive()


def test_a_total_that_is_used_up_says_so_and_ends_with_the_last_lines(cluster: EmbeddedCluster, ended: Job) -> None:
    source: Any = WithLogs(cluster, Log(*LINES))
    seen = texts(follow_logs(source, ended, budget=Budget(total=20, tail_lines=2)))
    limit = "(14 bytes shown, the limit is reached; the last lines follow when the job ends)"
    assert seen == ["line 0", "line 1", limit, "... 8 lines not shown", "line 10", "line 11"]


@pytest.mark.medium
def test_a_tick_shows_no_more_than_its_bytes_and_nothing_is_lost(
    cluster: EmbeddedCluster, job: Job, add_pod: Any, set_status: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_pod(job, 0, phase="Running")
    ticks: list[int] = []
    arriving = module.LogFollower.lines_within

    def counted(following: Any, seconds: float, **options: Any) -> Iterator[LogLine]:
        ticks.append(0)
        for line in arriving(following, seconds, **options):
            ticks[-1] += len(line.text) + 1
            yield line

    monkeypatch.setattr(module.LogFollower, "lines_within", counted)
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.1)  # the pod outlives its job

    class EndsAfterTicks(WithLogs):
        def get(self, *arguments: Any) -> Any:
            if len(ticks) > 8:
                set_status(job, "Complete")
            return super().get(*arguments)

    source: Any = EndsAfterTicks(cluster, Log(*LINES))
    seen = texts(follow_logs(source, job, budget=Budget(tick=14)))
    assert seen == list(LINES)
    assert max(ticks) <= 14 + len("line 11\n")
