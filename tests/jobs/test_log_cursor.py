"""Which lines of a repeated log are new, whatever was sent before and however the server rounds times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.jobs.logs.container_log import LogCursor, split_stamp

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("line", "stamp", "text"),
    [
        (b"1970-01-01T00:00:01.5Z hello", 1_500_000_000, b"hello"),
        (b"1970-01-01T01:00:01.000000007+01:00  two", 1_000_000_007, b" two"),
        (b"1970-01-01T00:00:02Z ", 2 * SECOND, b""),
        (b"1970-13-01T00:00:02Z x", None, b"1970-13-01T00:00:02Z x"),
        (b"no time", None, b"no time"),
    ],
)
def test_a_line_and_its_time(line: bytes, stamp: int | None, text: bytes) -> None:
    assert (split_stamp(line)[0], split_stamp(line)[2]) == (stamp, text)


# Times rise but for moments: the two streams of a container are stamped apart.
times = st.lists(st.tuples(st.integers(0, SECOND), st.integers(0, SECOND // 2)), max_size=40).map(
    lambda steps: [100 * SECOND + sum(step for step, _ in steps[: at + 1]) - back for at, (_, back) in enumerate(steps)]
)


@given(times, st.lists(st.integers(0, 40), max_size=6), st.booleans())
def test_every_line_is_taken_once_over_any_cuts(log: list[int], cuts: list[int], forgetful: bool) -> None:
    """`forgetful`: a server that sends the whole log each time, whatever it was asked for."""
    cursor, taken = LogCursor(), []
    for cut in [*cuts, len(log)]:
        since = cursor.since()
        moment = 0 if forgetful or not since else split_stamp(since.encode() + b" ")[0] or 0
        cursor.start_connection()
        sent = [(at, stamp) for at, stamp in enumerate(log) if stamp >= moment]
        taken += [at for at, stamp in sent[: cut if cut < len(sent) else len(sent)] if cursor.accept(stamp)]
    assert taken == list(range(len(log)))


def test_lines_that_a_rotation_took_away_cost_no_new_ones() -> None:
    cursor = LogCursor()
    assert all(cursor.accept(5 * SECOND + number) for number in range(100))
    cursor.start_connection()
    assert [cursor.accept(5 * SECOND + number) for number in (98, 99, 100, 101)] == [False, False, True, True]


def test_a_line_without_a_time_belongs_to_the_one_before() -> None:
    cursor = LogCursor()
    assert cursor.accept(None)
    assert cursor.accept(SECOND)
    cursor.start_connection()
    assert [cursor.accept(stamp) for stamp in (SECOND, None, 2 * SECOND, None)] == [False, False, True, True]


def test_a_clock_that_is_set_back_loses_nothing_and_holds_two_seconds() -> None:
    cursor = LogCursor()
    cursor.accept(1000 * SECOND)
    assert all(cursor.accept(second * SECOND) for second in range(100, 200))
    assert cursor.since() == "1970-01-01T00:03:18Z"
    assert len(cursor._recent) == 2
