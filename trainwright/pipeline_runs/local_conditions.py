"""Conditions of a compiled pipeline, in the part of CEL that kfp's compiler writes. Pure.

It writes comparisons, of which some are negated, joined by `&&`:
`inputs.parameter_values['x'] > 0.5 && !(int(inputs.parameter_values['n']) == 1)`
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

from trainwright.pipeline_runs.local_values import BadValue
from trainwright.text.foreign_texts import one_line

_OPERAND = r"(?:(?:int|double)\()?(?:inputs\.parameter_values\['[^']+'\]|true|false|-?[\d.]+(?:e[+-]?\d+)?|'[^']*')\)?"
_COMPARISON = re.compile(rf"(?P<not>!\()?(?P<left>{_OPERAND}) (?P<sign>==|!=|<=?|>=?) (?P<right>{_OPERAND})(?(not)\))(?: && |$)")
_READ = re.compile(
    r"(?:(?P<cast>int|double)\()?(?:inputs\.parameter_values\['(?P<input>[^']+)'\]|'(?P<text>.*)'|(?P<literal>[^)]+))\)?", re.S
)
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def is_met(condition: str, value_of: Callable[[str], Any]) -> bool:
    """Whether a condition holds.

    `value_of` returns the value of an input by name, as the type that its group declares. Raises BadValue if a value is missing or
    null, has another type than the one that it is compared with, or if the condition cannot be read: a server fails then, too.
    """
    shown, at, found = repr(one_line(condition)[:200]), 0, True
    while at < len(condition):
        if (comparison := _COMPARISON.match(condition, at)) is None:
            raise BadValue(f"the condition {shown} cannot be read; a server refuses quotes in its texts, too")
        left, right = (_operand(comparison[side], value_of, shown) for side in ("left", "right"))
        if {type(left), type(right)} & {str, bool} and type(left) is not type(right):
            raise BadValue(f"the condition {shown} compares {left!r} with {right!r}")
        # All comparisons are read, so that a missing value is found in each of them.
        found = (_SIGNS[comparison["sign"]](left, right) is not bool(comparison["not"])) and found
        at = comparison.end()
    return found


def _operand(text: str, value_of: Callable[[str], Any], shown: str) -> Any:
    read = _READ.fullmatch(text)
    assert read is not None, "part of a comparison"
    value: Any
    if read["input"] is not None:
        value = value_of(read["input"])
        if isinstance(value, float) and not math.isfinite(value):
            raise BadValue(f"the condition {shown} compares {read['input']}, which is {value}")
        if value is None or isinstance(value, list | dict):
            raise BadValue(
                f"the condition {shown} has nothing to compare: {read['input']} is {'null' if value is None else 'not one value'}"
            )
    elif read["text"] is not None:
        value = read["text"]
    else:
        value = {"true": True, "false": False}.get(read["literal"])
        if value is None:
            value = float(read["literal"]) if re.search(r"[.e]", read["literal"]) else int(read["literal"])
    if read["cast"] is None:
        return value
    try:
        return int(value) if read["cast"] == "int" else float(value)
    except (ValueError, OverflowError):
        raise BadValue(f"the condition {shown} needs a number, got {one_line(str(value))[:80]!r}") from None
