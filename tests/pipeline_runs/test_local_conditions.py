"""Conditions as kfp's compiler writes them."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.pipeline_runs.local_inputs import is_met
from trainwright.pipeline_runs.local_values import BadValue

VALUES: dict[str, Any] = {"n": 3, "x": 0.25, "text": "a && b", "flag": True, "none": None, "digits": "12", "list": [1]}


def read(condition: str) -> str:
    """The condition with inputs written as $NAME."""
    for name in sorted(VALUES, key=len, reverse=True):
        condition = condition.replace(f"${name}", f"inputs.parameter_values['{name}']")
    return condition


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("int($n) == 3", True),
        ("int($n) != 3", False),
        ("!(int($n) == 3)", False),
        ("double(int($n)) > 2.5", True),
        ("$x <= 0.25 && int($n) >= 4", False),
        ("$x < 1e-3", False),
        ("-1 < int($n)", True),
        ("$text == 'a && b' && !($flag == false)", True),
        ("$text == ''", False),
        ("$flag == true", True),
        ("int($digits) > 11", True),
        ("$digits == '12'", True),
        ("'a' != $digits && '&& true' == '&& true'", True),
    ],
)
def test_condition_is_evaluated_as_on_a_server(condition: str, holds: bool) -> None:
    assert is_met(read(condition.replace("double(int($n))", "double($n)")), VALUES.get) is holds


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("$none == 'a'", "is null"),
        ("int($n) == 4 && $none == 'a'", "is null"),
        ("$missing == 'a'".replace("$missing", "inputs.parameter_values['missing']"), "is null"),
        ("$list == 'a'", "not one value"),
        ("$text == 3", "compares 'a && b' with 3"),
        ("$flag == 1", "compares True with 1"),
        ("int($text) == 1", "needs a number"),
        ("$text == 'it's'", "cannot be read"),
        ("int($n) == 3 || $flag == true", "cannot be read"),
        ("__import__('os') == 'x'", "cannot be read"),
        ("!(int($n) == 3", "cannot be read"),
    ],
)
def test_condition_without_an_answer_is_an_error(condition: str, problem: str) -> None:
    with pytest.raises(BadValue, match=problem):
        is_met(read(condition), VALUES.get)
