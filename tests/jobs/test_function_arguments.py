"""Arguments of a training function: checked against its signature, and converted from text by its annotations."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from factories import train_request

from trainwright.jobs.code.function_arguments import times_of
from trainwright.jobs.request.invalid_settings import InvalidSettings


def arguments_of(annotation: str, value: Any) -> Any:
    """The argument that a function with one parameter gets."""
    parameter = f"x: {annotation}" if annotation else "x"
    return train_request(func=f"def fit({parameter}): ...", func_args={"x": value}).func_args["x"]


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        ("int", "4", 4),
        ("int", "4.0", 4),
        ("int", 4.0, 4),
        ("float", "1e-4", 1e-4),
        ("float", 1, 1.0),
        ("float", 2.0, 2.0),
        ("bool", "false", False),
        ("bool", "False", False),
        ("bool", "True", True),
        ("bool", 0, False),
        ("str", "4", "4"),
        ("str", "false", "false"),
        ("list", "[1, 2]", [1, 2]),
        ("list", "['a', \"b'c\"]", ["a", "b'c"]),
        ("list[float]", [1, 2], [1.0, 2.0]),
        ("List[int]", "[1.0, 2.0]", [1, 2]),
        ("tuple[int, ...]", ["1", 2], [1, 2]),
        ("dict", '{"a": [1]}', {"a": [1]}),
        ("Dict[str, bool]", {"a": "false"}, {"a": False}),
        ("dict[str, list[float]]", {"a": [1]}, {"a": [1.0]}),
        ("typing.Optional[int]", "", None),
        ("Optional[int]", "4.0", 4),
        ("int | None", None, None),
        ("'int'", "4", 4),
        ("Literal['a', 'b']", "a", "a"),
        ("Literal[1, 2]", "2", 2),
        ("Union[int, list[int]]", "[1]", [1]),
        ("int | float", 0.5, 0.5),
        ("Annotated[int, 'steps']", "3", 3),
        ("Config", "4", "4"),
        ("", "4", "4"),
        ("Any", False, False),
        ("", 2.0, 2.0),
        ("dict", {"rate": 2.0, "layers": (1, 2)}, {"rate": 2.0, "layers": [1, 2]}),
        ("str | bytes", "a", "a"),
        ("list[float]", range(2), [0.0, 1.0]),
        ("", {"a": range(2)}, {"a": [0, 1]}),
    ],
)
def test_argument_is_converted_by_its_annotation(annotation: str, value: Any, expected: Any) -> None:
    found = arguments_of(annotation, value)
    assert (found, type(found)) == (expected, type(expected))
    if isinstance(expected, list):
        assert [type(one) for one in found] == [type(one) for one in expected]


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        ("int", "4.5", "expected an integer, got '4.5'"),
        ("int", 4.5, "expected an integer"),
        ("int", "", "expected an integer"),
        ("int", True, "expected an integer, got True"),
        ("float", "nan", "expected a number"),
        ("float", False, "expected a number"),
        ("bool", "maybe", "expected true or false"),
        ("bool", 2, "expected true or false"),
        ("str", False, "expected text, got False"),
        ("str", 4, "expected text"),
        ("list", "a, b", "expected a list"),
        ("list", {"a": 1}, "expected a list"),
        ("list[int]", ["a"], r"\[0\]: expected an integer"),
        ("dict[str, int]", {"a": "b"}, r"\['a'\]: expected an integer"),
        ("int", None, "expected an integer, got None"),
        ("int | str", "4", "'4' is ambiguous: it may be an integer or text"),
        ("Optional[str]", "None", "ambiguous"),
        ("Literal['a', 'b']", "c", "expected one of 'a', 'b'"),
        ("list[float]", [1, "{1"], r"\[1\]: expected a number"),
        ("set[int]", [1], "is annotated as set, and arguments are JSON; annotate it as text, a number, a list or a dict"),
        ("bytes | None", "a", "is annotated as bytes"),
        ("list[Decimal]", ["1.1"], "is annotated as Decimal"),
        ("datetime | str", "2026-01-01", "is annotated as a date or a duration beside another type than None"),
        ("", {1, 2}, "JSON has no type set; pass numbers, text, lists or dicts"),
        ("dict", {"a": [b"x"]}, r"\['a'\]: \[0\]: JSON has no type bytes"),
        ("dict", {1: "a"}, "the key 1 is not text, as in JSON"),
        ("", datetime(2026, 1, 1), r"got a datetime where no annotation says so: annotate it as datetime, list\[datetime\]"),
        ("dict", {"a": date(2026, 1, 1)}, r"\['a'\]: got a date where"),
        ("str", timedelta(1), "expected text, got datetime.timedelta"),
        ("datetime", "2026-01-31", "expected a date with its time"),
        ("datetime", date(2026, 1, 31), "expected a date with its time"),
        ("datetime", "yesterday", "expected a date with its time"),
        ("datetime", 1735689600, "expected a date with its time"),
        ("date", "2026-01-31 00:00:00+00:00", "expected a date without a time, as 2026-01-31"),
        ("date", datetime(2026, 1, 31), "expected a date without a time"),
        ("date", 20260131, "expected a date without a time"),
        ("timedelta", "1 day, 2:00:00", "expected a timedelta, or seconds"),
        ("timedelta", 1e300, "expected a timedelta, or seconds"),
        ("timedelta", True, "expected a timedelta, or seconds"),
    ],
)
def test_unfit_argument_is_refused_with_its_name(annotation: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidSettings, match=f"func_args: .*x.*{words}"):
        arguments_of(annotation, value)


MOMENT = datetime(2026, 10, 25, 2, 30, 0, 123, timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("annotation", "value", "expected", "times"),
    [
        ("datetime", MOMENT, "2026-10-25T02:30:00.000123+01:00", "datetime"),
        ("datetime.datetime", "2026-01-31 12:00:00Z", "2026-01-31T12:00:00+00:00", "datetime"),
        ("datetime", datetime(2026, 1, 31), "2026-01-31T00:00:00", "datetime"),
        ("datetime | None", "None", None, "datetime"),
        ("Optional[datetime]", datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00+00:00", "datetime"),
        ("date", "20260131", "2026-01-31", "date"),
        ("timedelta", timedelta(days=1, microseconds=1), 86400.000001, "timedelta"),
        ("timedelta", "90", 90.0, "timedelta"),
        ("list[date]", (date(2026, 1, 1), "2026-01-02"), ["2026-01-01", "2026-01-02"], ["date"]),
        ("dict[str, list[timedelta]] | None", {"a": [1]}, {"a": [1.0]}, [["timedelta"]]),
        ("list[datetime | None]", [None, MOMENT], [None, MOMENT.isoformat()], ["datetime"]),
    ],
)
def test_dates_and_durations_are_text_and_seconds_until_the_launcher_has_them(
    annotation: str, value: Any, expected: Any, times: list[Any]
) -> None:
    request = train_request(func=f"def fit(x: {annotation}): ...", func_args={"x": value})
    assert request.func_args == {"x": expected}
    assert times_of(request.func, request.func_args) == {"x": times}
    assert train_request(func=request.func, func_args=request.func_args).func_args == request.func_args, (
        "converting twice changes"
    )


def test_unknown_and_missing_arguments_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        InvalidSettings, match=r"no argument 'stepz' \(did you mean steps\?\); fit\(\) needs the argument 'steps'"
    ):
        train_request(func="def fit(steps: int): ...", func_args={"stepz": 3})
    with pytest.raises(InvalidSettings, match="func_args: fit\\(\\) needs the arguments 'a', 'b'"):
        train_request(func="def fit(a, *, b, c=1): ...")
    with pytest.raises(InvalidSettings, match="it takes no arguments"):
        train_request(func="def fit(): ...", func_args={"x": 1})
    with pytest.raises(InvalidSettings, match="'a' cannot be passed by name"):
        train_request(func="def fit(a, /): ...", func_args={"a": 1})
