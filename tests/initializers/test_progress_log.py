"""A transfer without a terminal says now and then how far it is, however many files it has."""

from __future__ import annotations

import logging

import pytest

from trainwright.storage.progress_log import log_progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_line_has_bytes_rate_and_remaining_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    on_progress = log_progress("model", clock=clock)(200_000_000)
    for _ in range(100):
        clock.now += 0.25
        on_progress(1_000_000)
    assert lines(caplog) == [
        "event=transfer_progress what=model bytes=40000000 total=200000000 mb_per_s=4.0 remaining_s=40",
        "event=transfer_progress what=model bytes=80000000 total=200000000 mb_per_s=4.0 remaining_s=30",
    ]


@pytest.mark.medium
def test_the_number_of_lines_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    on_progress = log_progress("model", clock=clock)(0)
    for _ in range(24 * 3600):
        clock.now += 1
        on_progress(10)
    assert 1400 < len(lines(caplog)) < 1700
    assert "remaining_s=unknown" in lines(caplog)[0]


def test_a_short_transfer_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    on_progress = log_progress("model", clock=clock)(10)
    clock.now = 9.9
    on_progress(10)
    assert lines(caplog) == []


def test_a_transfer_that_starts_over_has_a_rate_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    on_progress = log_progress("model", clock=clock)(100)
    for seconds, count in ((11, 90), (22, -90)):
        clock.now = seconds
        on_progress(count)
    assert "mb_per_s=0.0 remaining_s=unknown" in lines(caplog)[1]
