"""Which lines of a log a report shows: tracebacks keep their header and their error, and the launcher's own lines go first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.jobs.logs.log_excerpt import excerpt, last_error, last_word, log_tail

HEADER = "Traceback (most recent call last):"


def traceback(error: str, frames: int, lead: str = "") -> list[str]:
    body = [line for number in range(frames) for line in (f'  File "train.py", line {number}, in step', f"    call_{number}()")]
    return [f"{lead}{line}" for line in (HEADER, *body, error)]


AGENT = [
    "W1122 14:44:00.100000 7 site-packages/torch/distributed/elastic/multiprocessing/api.py:900] Sending process 9 closing signal",
    "E1122 14:44:01.100000 7 site-packages/torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0",
]
SUMMARY = [
    *traceback("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", 20),
    "=" * 60,
    "train.py FAILED",
    *[f"  rank      : {rank} (local_rank: {rank})" for rank in range(48)],
    "=" * 60,
]


def test_a_long_traceback_keeps_its_header_and_the_frames_of_its_error() -> None:
    lines = ["step 1", *traceback("ValueError: bad batch", 30)]
    shown = excerpt(lines, 20)
    assert shown[0] == HEADER
    assert shown[1] == "... 43 lines not shown ..."
    assert shown[-1] == "ValueError: bad batch"
    assert len(shown) == 20


def test_chained_errors_are_all_shown_with_what_joins_them() -> None:
    joined = "During handling of the above exception, another exception occurred:"
    lines = [*traceback("KeyError: 'a'", 30), "", joined, "", *traceback("ValueError: b", 30)]
    shown = excerpt(lines, 20)
    kept = [line for line in shown if line in (HEADER, "KeyError: 'a'", joined, "ValueError: b")]
    assert kept == [HEADER, "KeyError: 'a'", joined, HEADER, "ValueError: b"]


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([], ""),
        (["last", " ", ""], "last"),
        ([*traceback("ValueError: b", 1), "wandb: done"], "ValueError: b"),
        ([HEADER, "  File cut off"], "File cut off"),
        (
            ["  + Exception Group Traceback (most recent call last):", '  |   File "a"', "  | ExceptionGroup: two"],
            "| ExceptionGroup: two",
        ),
        (["Original Traceback (most recent call last):", '  File "a"', "KeyError: 3"], "KeyError: 3"),
    ],
)
def test_the_error_is_that_of_the_last_traceback(lines: list[str], error: str) -> None:
    assert last_error(lines) == error


def test_the_launchers_lines_are_left_out_before_the_tail_is_taken() -> None:
    lines = [*[f"step {number}" for number in range(40)], *traceback("ValueError: bad batch", 4), *AGENT, *SUMMARY]
    shown = log_tail(lines, 20)
    assert shown == [*[f"step {number}" for number in range(30, 40)], *traceback("ValueError: bad batch", 4)]
    assert last_word(lines) == "ValueError: bad batch"


def test_output_after_a_restart_by_the_launcher_counts() -> None:
    lines = [*traceback("ValueError: first", 2), *AGENT, *traceback("ValueError: second", 2), *AGENT, *SUMMARY]
    assert log_tail(lines, 6) == traceback("ValueError: second", 2)


WORDS = st.sampled_from([HEADER, "  File", "ValueError: x", "", "plain", "[rank0]: " + HEADER, *AGENT, SUMMARY[-1]])


@given(st.lists(WORDS, max_size=60), st.integers(1, 20))
def test_property_an_excerpt_is_short_in_order_and_ends_as_the_log(lines: list[str], count: int) -> None:
    shown = excerpt(lines, count)
    kept = [line for line in shown if not line.startswith("... ")]
    assert shown[-1:] == lines[-1:]
    assert len(shown) <= count
    assert excerpt(shown, count) == shown
    remaining = iter(lines)
    assert all(line in remaining for line in kept)
