"""Tests the pauses between attempts."""

import pytest

from trainwright.backoff import Backoff, retry


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


def test_an_action_is_repeated_after_the_errors_that_may_pass_and_with_the_pauses_that_were_decided() -> None:
    failures, pauses = iter([KeyError(1), KeyError(2)]), list[float]()

    def action() -> str:
        for error in failures:
            raise error
        return "done"

    assert retry(action, KeyError, lambda error, count: error.args[0] + count / 10, pauses.append) == "done"
    assert pauses == [1.1, 2.2]


def test_the_error_that_ends_the_attempts_is_the_last_one() -> None:
    def give_up(error: ValueError, _: int) -> float:
        raise error

    with pytest.raises(ValueError, match="x") as raised:
        retry(lambda: int("x"), ValueError, give_up, lambda _: pytest.fail("paused"))
    assert raised.value.__context__ is None
    with pytest.raises(ValueError, match="x"):  # an error of another kind is not asked about
        retry(lambda: int("x"), KeyError, lambda error, count: pytest.fail("retried"))


def test_the_last_of_a_number_of_attempts_is_known() -> None:
    pauses = list[float]()
    assert list(Backoff(1, 9, jitter=0).attempts(3, pauses.append)) == [False, False, True]
    assert pauses == [1, 2]
