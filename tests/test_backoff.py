"""Tests the pauses between attempts."""

import pytest

from trainwright.backoff import Backoff


@pytest.mark.parametrize(
    ("backoff", "failures", "seconds"),
    [
        (Backoff(0.5, 8), range(7), [0, 0.5, 1, 2, 4, 8, 8]),
        (Backoff(2, 10, factor=1.5), range(1, 5), [2, 3, 4.5, 6.75]),
        (Backoff(10, 4), [1], [4]),
        (Backoff(0, 4), [1, 9], [0, 0]),
        (Backoff(1, 60), [10**9], [60]),
    ],
)
def test_pauses_grow_by_the_factor_up_to_the_longest(backoff: Backoff, failures: list[int], seconds: list[float]) -> None:
    assert [backoff.seconds(number) for number in failures] == seconds


def test_jitter_is_the_share_that_chance_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    backoff = Backoff(10, 60, jitter=0.2)
    monkeypatch.setattr("random.uniform", lambda low, high: low)
    assert backoff.pause(1) == 8
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    assert (backoff.pause(1), backoff.pause(0)) == (10, 0)
