"""One run of a container is read once: over lost connections, restarts, and pods that go away."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_cluster import GONE, LogCluster, key, line

from trainwright.api.errors import BadRequest, Forbidden, ServiceUnavailable
from trainwright.jobs.logs.container_log import NOT_KEPT
from trainwright.ui.logs import spool_reader
from trainwright.ui.logs.spool import LogSpool
from trainwright.ui.logs.spool_reader import SpoolReader

LOST = ServiceUnavailable("the connection broke")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_reader, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(spool_reader, "MAX_LOST_CONNECTIONS", 5)


def read(cluster: LogCluster, *, restart: int = 0, limit: int = 1 << 30) -> LogSpool:
    spool = LogSpool(key(restart), lambda spool, size: "too much" if spool.size + size > limit else "")
    SpoolReader(cluster, spool).run()  # type: ignore[arg-type]
    return spool


def texts(spool: LogSpool) -> list[str]:
    return [text.decode() for text in spool.window(0, 2000).texts]


def lines(start: int, end: int) -> bytes:
    return b"".join(line(number) for number in range(start, end))


def expected(count: int) -> list[str]:
    return [f"line {number}" for number in range(count)]


def test_a_finished_log_is_read_on_one_connection() -> None:
    cluster = LogCluster([lines(0, 500)[:777], lines(0, 500)[777:]], running=False)
    spool = read(cluster)
    assert texts(spool) == expected(500)
    assert spool.state.name == "ended"
    assert [asked["follow"] for asked in cluster.asked] == [False]
    assert spool.window(0, 1).stamps == [line(0).split(b" ")[0]]


def test_a_live_log_is_followed_to_its_last_line_without_a_line_feed() -> None:
    cluster = LogCluster([lines(0, 3) + line(3)[:-3]], final=lines(0, 5)[:-1])
    spool = read(cluster)
    assert texts(spool) == expected(5)
    assert [asked["follow"] for asked in cluster.asked] == [True, False]
    assert spool.partial == b""


@given(st.lists(st.integers(0, 4000), max_size=4))
def test_property_lost_connections_neither_repeat_nor_lose_lines(cuts: list[int]) -> None:
    """Each connection repeats the lines from the second it is asked for, and may break within a line."""
    whole = [line(number) for number in range(150)]

    class Cut(LogCluster):
        def logs(self, *_arguments: Any, **options: Any) -> Any:
            since = (options.get("since_time") or "").encode()[:19]
            sent = b"".join(each for each in whole if each[:19] >= since)
            part = self.connections.pop(0)[0] if self.connections else b"all"
            if part == b"all":
                yield sent
                return
            assert isinstance(part, bytes)
            yield sent[: int(part)]
            raise LOST

    assert texts(read(Cut(*[[str(cut).encode()] for cut in cuts]))) == expected(150)


def test_lines_that_the_node_has_not_kept_are_noted_once() -> None:
    cluster = LogCluster([lines(0, 3), LOST], [lines(5000, 5002)], running=True)
    assert texts(read(cluster)) == ["line 0", "line 1", "line 2", NOT_KEPT, "line 5000", "line 5001"]


def test_a_log_without_timestamps_is_not_repeated() -> None:
    cluster = LogCluster([b"a\nb\n", LOST], [b"a\nb\nc\n"])
    assert texts(read(cluster)) == ["a", "b", "c"]


def test_a_restart_ends_the_run_with_its_last_lines() -> None:
    cluster = LogCluster([lines(0, 2), LOST], previous=lines(0, 4))

    def restart() -> None:
        cluster.restarts = 1

    cluster.on_log = restart  # type: ignore[method-assign]
    spool = read(cluster)
    assert texts(spool) == expected(4)
    assert (spool.state.name, spool.state.message) == ("ended", "the container was restarted after this run")


def test_the_previous_run_is_read() -> None:
    spool = read(LogCluster([], previous=lines(0, 2), restarts=3), restart=2)
    assert texts(spool) == expected(2)
    assert spool.state.name == "ended"


@pytest.mark.parametrize(("restarts", "restart"), [(3, 1), (3, 2)])
def test_a_run_that_the_node_has_not_kept_is_gone(restarts: int, restart: int) -> None:
    spool = read(LogCluster([], restarts=restarts), restart=restart)
    assert spool.state.name == "gone"
    assert "has not kept" in spool.state.message


def test_a_waiting_container_is_waited_for() -> None:
    cluster = LogCluster([BadRequest("container is waiting to start: ContainerCreating")], [lines(0, 1)])
    spool = LogSpool(key(), lambda *_: "")
    said = []
    original = spool.set_state
    spool.set_state = lambda state: (said.append(state), original(state))[-1]  # type: ignore[method-assign]
    SpoolReader(cluster, spool).run()  # type: ignore[arg-type]
    assert [state.name for state in said if state.name == "waiting"] == ["waiting"]
    assert texts(spool) == expected(1)


def test_a_waiting_container_says_why() -> None:
    cluster = LogCluster([lines(0, 1)])
    cluster.status = {
        "phase": "Pending",
        "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}],
    }
    spool = LogSpool(key(), lambda *_: "")
    reader = SpoolReader(cluster, spool)  # type: ignore[arg-type]
    reader._read_once()
    assert spool.state.name == "waiting"
    assert "ImagePullBackOff" in spool.state.message


def test_a_deleted_pod_keeps_the_lines_that_were_read() -> None:
    cluster = LogCluster([lines(0, 2) + b"2026-01-02T03:00:01Z half", LOST], [lines(0, 3)])
    cluster.on_log = lambda: cluster.failures.append(GONE)  # type: ignore[method-assign]
    spool = read(cluster)
    assert texts(spool) == ["line 0", "line 1", "half"]
    assert spool.state.name == "gone"


def test_another_pod_of_the_same_name_is_not_read() -> None:
    cluster = LogCluster([lines(0, 2)])
    cluster.uid = "successor"
    spool = read(cluster)
    assert spool.state.name == "gone"
    assert "another one has its name" in spool.state.message
    assert cluster.asked == []


def test_a_log_that_may_not_be_read_says_so() -> None:
    spool = read(LogCluster([Forbidden("pods/log is forbidden")]))
    assert (spool.state.name, spool.state.message) == ("forbidden", "the log may not be read: pods/log is forbidden")


def test_a_server_that_stays_away_is_lost() -> None:
    spool = read(LogCluster(*[[LOST]] * 20))
    assert spool.state.name == "lost"
    assert "the connection broke" in spool.state.message


def test_a_server_that_refuses_everybody_after_its_restart_is_waited_for() -> None:
    assert texts(read(LogCluster([lines(0, 1), LOST], [LOST], [Forbidden("rbac: not ready")], [lines(0, 2)]))) == expected(2)


def test_a_log_beyond_the_limit_is_truncated() -> None:
    spool = read(LogCluster([lines(0, 10)], [lines(0, 20)]), limit=600)
    assert spool.state.name == "truncated"
    assert spool.size <= 600
    assert texts(spool) == expected(10)


def test_a_closed_spool_stops_its_reader() -> None:
    spool = LogSpool(key(), lambda *_: "")
    spool.close()
    cluster = LogCluster([lines(0, 2)])
    SpoolReader(cluster, spool).run()  # type: ignore[arg-type]
    assert cluster.asked == []
