"""Following logs: pods that start later, connections that break, and a reader that goes away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from waiting import eventually

from trainwright.api.errors import BadRequest, NotFound, ServiceUnavailable
from trainwright.api.kinds import POD, TRAINJOB
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, TrainRequest, submit_or_adopt
from trainwright.jobs import logs as module
from trainwright.jobs.logs import log_lines


class WithLogs:
    """The cluster with logs of the test: for each pod a list of connections, each a list of chunks and errors."""

    def __init__(self, cluster: EmbeddedCluster, **connections: list[list[bytes | Exception | threading.Event]]):
        self._cluster, self.connections = cluster, connections
        self.lost = 0
        self.asked: list[dict[str, Any]] = []

    def get(self, *arguments: Any) -> Any:
        if self.lost > 0:
            self.lost -= 1
            raise ServiceUnavailable("down")
        return self._cluster.get(*arguments)

    def list(self, *arguments: Any, **more: Any) -> Any:
        return self._cluster.list(*arguments, **more)

    def logs(self, name: str, _namespace: str, **options: Any) -> Iterator[bytes]:
        self.asked.append(options)
        steps = self.connections[name.split("-node-0-")[1][0].replace("0", "first").replace("1", "second")].pop(0)
        for step in steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, threading.Event):
                step.wait(10)
            else:
                yield step


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)


@pytest.fixture
def job(cluster: EmbeddedCluster, request_of: Callable[..., TrainRequest]) -> dict[str, Any]:
    return submit_or_adopt(cluster, request_of(), Identity("o", "r", "s"), "default").trainjob


def texts(lines: Iterator[tuple[str, str]]) -> list[str]:
    return [line for _, line in lines]


def test_logs_of_all_pods_or_of_one_index(cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any) -> None:
    for index in (0, 1):
        add_pod(job, index, phase="Running")
    source = WithLogs(cluster, first=[[b"a\nb", b"\nc\xff"]] * 2, second=[[b"d\r\n"]] * 2)
    assert list(log_lines(source, job, tail=5)) == [  # type: ignore[arg-type]
        (f"{job['metadata']['name']}-node-0-0-abcde", "a"),
        (f"{job['metadata']['name']}-node-0-0-abcde", "b"),
        (f"{job['metadata']['name']}-node-0-0-abcde", "c\ufffd"),
        (f"{job['metadata']['name']}-node-0-1-abcde", "d\r"),
    ]
    assert texts(log_lines(source, job, index=1)) == ["d\r"]  # type: ignore[arg-type]
    assert source.asked[0] == {"container": "node", "follow": False, "tail_lines": 5}
    with pytest.raises(NotFound, match="no pods of the step 'launcher'"):
        list(log_lines(source, job, step="launcher"))  # type: ignore[arg-type]


def test_following_waits_for_pods_that_start_later_and_ends_with_the_job(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any
) -> None:
    first = add_pod(job, 0, phase="Pending")
    source = WithLogs(cluster, first=[[b"one\n"]], second=[[b"two\n"]])
    lines = log_lines(source, job, follow=True)  # type: ignore[arg-type]
    seen: list[str] = []
    reader = threading.Thread(target=lambda: seen.extend(texts(lines)), daemon=True)
    reader.start()
    cluster.patch(POD, first["metadata"]["name"], {"status": {"phase": "Running"}}, "default", subresource="status")
    eventually(lambda: len(source.asked) == 1)
    add_pod(job, 1, phase="Running")
    eventually(lambda: len(source.asked) == 2)
    assert reader.is_alive()
    set_status(job, "Complete")
    reader.join(10)
    assert not reader.is_alive()
    assert seen == ["one", "two"]


def test_a_connection_that_breaks_goes_on_after_the_last_line(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any
) -> None:
    add_pod(job, 0, phase="Running")
    set_status(job, "Complete")
    connections = [
        [BadRequest("is waiting to start")],
        [b"a\nb\nhal", ServiceUnavailable("broke")],
        [ServiceUnavailable("down")],
        [b"a\nb\nhalf\nc\n"],
    ]
    assert texts(log_lines(WithLogs(cluster, first=connections), job, follow=True)) == ["a", "b", "half", "c"]  # type: ignore[arg-type]


def test_a_tail_whose_connection_breaks_says_so(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any
) -> None:
    add_pod(job, 0, phase="Running")
    set_status(job, "Complete")
    source = WithLogs(cluster, first=[[b"a\n", ServiceUnavailable("broke")]])
    assert texts(log_lines(source, job, follow=True, tail=1)) == ["a", "(the connection to this log broke: broke)"]  # type: ignore[arg-type]


def test_a_cluster_that_is_away_for_a_moment_does_not_end_it_and_for_long_does(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_LOST", 3)
    add_pod(job, 0, phase="Running")
    set_status(job, "Complete")
    source = WithLogs(cluster, first=[[b"a\n"]])
    source.lost = 3
    assert texts(log_lines(source, job, follow=True)) == ["a"]  # type: ignore[arg-type]
    source.lost = 4
    with pytest.raises(ServiceUnavailable, match="down"):
        list(log_lines(source, job, follow=True))  # type: ignore[arg-type]


def test_readers_end_when_nobody_listens_any_more(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_PENDING", 1)
    add_pod(job, 0, phase="Running")
    before = set(threading.enumerate())
    lines: Any = log_lines(WithLogs(cluster, first=[[b"x\n" * 100]]), job, follow=True)  # type: ignore[arg-type]
    assert next(lines)[1] == "x"
    (reader,) = set(threading.enumerate()) - before
    lines.close()
    reader.join(10)
    assert not reader.is_alive()


def test_a_job_that_is_deleted_ends_it(cluster: EmbeddedCluster, job: dict[str, Any]) -> None:
    cluster.delete(TRAINJOB, job["metadata"]["name"], "default")
    assert list(log_lines(cluster, job, follow=True)) == []
