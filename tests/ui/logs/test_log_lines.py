"""The end of a log is read in bounded memory, and what follows it has each line once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_cluster import LogCluster, line, lines

from trainwright.jobs.logs import container_log
from trainwright.jobs.logs.container_log import MAX_LINE_BYTES, NOT_KEPT
from trainwright.ui.logs import log_lines
from trainwright.ui.logs.log_lines import TOO_FAST, FollowedLog, Line, Tail, line_of, read_tail, shown


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_log, "POLL_SECONDS", 0.001)


def tail_of(cluster: LogCluster, size: int) -> Tail:
    options = {"container": "main", "previous": False}
    return read_tail(cluster, "p", "default", size, options, has_ended=False)  # type: ignore[arg-type]


def followed(cluster: LogCluster, *, after: str = "", size: int = 1 << 30) -> list[Line]:
    log = FollowedLog(cluster, cluster.get(), "main", after=after, size=size)  # type: ignore[arg-type]
    log.run()
    assert log.has_ended
    return log.take()[0]


def texts(found: list[Line]) -> list[str]:
    return [text for _, text in found]


@given(st.lists(st.integers(0, 120), max_size=80), st.integers(1, 6000), st.integers(1, 500))
def test_property_a_tail_is_the_end_of_the_log(lengths: list[int], size: int, probe: int) -> None:
    log = [line(number, "x" * (length + 1)) for number, length in enumerate(lengths)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_lines, "_PROBE_BYTES", probe)
        tail = tail_of(LogCluster(log), size)
    found = [each + b"\n" for each in tail.lines]
    assert found == log[len(log) - len(found) :]
    assert tail.is_cut == (len(found) < len(log))
    if tail.is_cut:
        kept = sum(map(len, found))
        assert kept <= size or len(found) == 1
        assert kept + len(log[-len(found) - 1]) > size
    else:
        assert found == log


@pytest.mark.medium
def test_a_long_log_is_not_read_from_its_begin() -> None:
    cluster = LogCluster(lines(0, 100_000))
    tail = tail_of(cluster, 500_000)
    assert [sorted(asked.keys() & {"limit_bytes", "tail_lines"}) for asked in cluster.asked] == [["limit_bytes"], ["tail_lines"]]
    assert cluster.asked[1]["tail_lines"] < 20_000
    assert tail.lines[-1] + b"\n" == line(99_999)


def test_a_line_that_has_not_ended_is_not_in_the_tail() -> None:
    cluster = LogCluster([*lines(0, 3), line(3)[:-1]])
    assert [each + b"\n" for each in tail_of(cluster, 1000).lines] == lines(0, 3)


def test_a_line_longer_than_the_tail_is_cut_with_a_mark() -> None:
    tail = tail_of(LogCluster([line(0), line(1, "begin" + "x" * 7_000_000 + "end")]), 5_000_000)
    shown_line = line_of(tail.lines[-1])
    assert not tail.is_cut  # there is no line before
    assert shown_line is not None
    assert shown_line[1].startswith("begin")
    assert shown_line[1].endswith("end")
    assert "bytes left out" in shown_line[1]
    assert len(shown_line[1]) < MAX_LINE_BYTES + 100


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" 10%\r 50%\r100%", "100%"),
        ("50%\r   \r", "50%"),
        ("\r\r", ""),
        ("\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link \x1bPq\x1b\\ \x1b[2J\x1b(Bend\x1b", "red link  end"),
        ("<script>\x07\u202e", "<script>\\x07\\u202e"),
        ("a\tb", "a\tb"),
        ("\ufffd\ufffd\x00\u200f", "\ufffd\ufffd\\x00\\u200f"),
    ],
)
def test_a_line_is_shown_as_on_a_terminal(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_messages_of_the_kubelet_are_not_lines() -> None:
    assert line_of(b"unable to retrieve container logs for containerd://1") is None
    assert line_of(b"continued") == ("", "continued")


ENCODED = ["trainwright-result 1/2 eyJsb3NzIjogMX0=", "trainwright-history 1/1 eJxVUA=="]


def test_encoded_results_are_not_lines() -> None:
    log = [
        line(0, "loss 1.5"),
        *(line(number, text) for number, text in enumerate(ENCODED, 1)),
        line(3, "trainwright-result of 7"),
    ]
    found = [line_of(raw.rstrip()) for raw in log]
    assert [each[1] for each in found if each] == ["loss 1.5", "trainwright-result of 7"]
    assert texts(followed(LogCluster(log))) == ["loss 1.5", "trainwright-result of 7"]


@pytest.mark.parametrize("text", ENCODED)
def test_encoded_result_that_has_not_ended_is_not_shown(text: str) -> None:
    log = FollowedLog(LogCluster([]), LogCluster([]).get(), "main", after="", size=100)  # type: ignore[arg-type]
    log._log._partial = line(0, text)[:-3]
    assert log.take() == ([], "")


@given(st.lists(st.integers(0, 4000), max_size=4), st.integers(-1, 149))
def test_property_lost_connections_neither_repeat_nor_lose_lines(cuts: list[int], after: int) -> None:
    """Each connection repeats the lines from the second it is asked for, and may break within a line."""
    time = line(after).split()[0].decode() if after >= 0 else ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(container_log, "POLL_SECONDS", 0.0)
        found = followed(LogCluster(lines(0, 150), cuts=tuple(cuts)), after=time)
    assert texts(found) == [f"line {number}" for number in range(after + 1, 150)]


def test_lines_beyond_what_a_connection_repeats_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "CATCH_UP_LINES", 10)
    found = followed(LogCluster(lines(0, 150)), after=line(50).split()[0].decode())
    assert texts(found) == [NOT_KEPT, *(f"line {number}" for number in range(140, 150))]


def test_lines_that_nobody_takes_are_dropped_with_a_note() -> None:
    found = texts(followed(LogCluster(lines(0, 1000)), size=100))
    assert (found[0], found[-1]) == (TOO_FAST, "line 999")
    assert len(found) < 20


def test_the_line_that_has_not_ended_is_known() -> None:
    log = FollowedLog(LogCluster([]), LogCluster([]).get(), "main", after="", size=100)  # type: ignore[arg-type]
    log._log._partial = line(0, " 10%\r 20%")[:-1]
    assert log.take() == ([], " 20%")
