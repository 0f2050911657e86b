"""Return values of training functions as JSON."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import json
from typing import Any

import numpy as np
import pytest

from trainwright.runtimes.plain_values import UNREPORTABLE, json_text


class Tensor:
    """A tensor as frameworks have them."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def tolist(self) -> Any:
        return self.value


class Eager:
    """A tensor that becomes a list by way of an array."""

    def numpy(self) -> Any:
        return np.array([1.5])


@dataclasses.dataclass
class Figures:
    loss: float
    when: datetime.date


class Level(enum.IntEnum):
    low = 1


def reported(value: Any) -> Any:
    return json.loads(json_text(value, "fit", 1000))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Tensor(1.5), 1.5),
        (Tensor([[1, 2]]), [[1, 2]]),
        (Eager(), [1.5]),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
        (np.array([1, "a", None], dtype=object), [1, "a", None]),
        (np.datetime64("2026-01-01T10:00", "ns"), "2026-01-01T10:00:00.000000000"),
        (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), "2026-01-01T00:00:00+00:00"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (Figures(np.float64(0.5), datetime.date(2026, 1, 2)), {"loss": 0.5, "when": "2026-01-02"}),
        (collections.namedtuple("Pair", "a b")(1, (2, 3)), {"a": 1, "b": [2, 3]}),
        ({1: "a", np.int64(7): "b", None: "c"}, {"1": "a", "7": "b", "null": "c"}),
        ([Level.low, np.str_("x")], [1, "x"]),
    ],
)
def test_value_is_reported_as_json(value: Any, expected: Any) -> None:
    assert reported(value) == expected
    assert reported({"a": [value]}) == {"a": [expected]}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"seen": {1}}, "fit: the value of seen is of type set, which cannot be reported"),
        ({"a": [0, {"b": object()}]}, "the value of a[1].b is of type object"),
        ({"d": decimal.Decimal(1)}, "the value of d is of type Decimal"),
        (b"x", "the return value is of type bytes"),
        ({(1, 2): 3}, "the value of (1, 2) (the key) is of type tuple"),
        (np.array([1j]), "the return value is of type ndarray"),
        (Tensor(1j), "the return value is of type complex"),
        (np.timedelta64(1, "s"), "is of type timedelta64"),
        ({1: 2, "1": 3}, "two keys of the return value are '1'"),
        ("x" * 1000, "the return value has more than 0 KiB of JSON"),
    ],
)
def test_unreportable_value_is_reported_with_its_key(value: Any, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in reported(value)[UNREPORTABLE]
    assert words in capsys.readouterr().err


def test_endless_value_is_unreportable() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "more than 90 levels deep" in reported(loop)[UNREPORTABLE]


def test_missing_date_is_null_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert reported({"days": np.array(["2026-01-01", "NaT"], dtype="datetime64[D]")}) == {"days": ["2026-01-01", None]}
    assert capsys.readouterr().err == "fit: warning: days[1] is not a date and is reported as null\n"
