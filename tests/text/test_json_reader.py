"""The reader of JSON: what Python's accepts and no API does is refused, with line and column."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.text.text_input import NotJson, Unreadable, read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,\n "a": 2}', "f:2:2: duplicate key 'a'"),
        ('{"x": ["a", {"b": 1, "\\u0062": 2}]}', "f:1:22: duplicate key 'b'"),
        ("[NaN]", "f:1:2: a number that JSON does not support: NaN"),
        ("[-Infinity]", "f:1:2: a number that JSON does not support: -Infinity"),
        ('["1e999", 1e999]', "f:1:11: a number that JSON does not support: too large"),
        (f"[{'9' * 5000}]", "f:1:2: a number that JSON does not support: too large"),
        ("[" * 200_000, "f:1:121: more than 120 levels deep"),
        ("[" * 121 + "]" * 121, "f:1:121: more than 120 levels deep"),
        ("{\n1: 2}", "f:2:1: not JSON: "),
        ("", "f:1:1: not JSON: "),
        ('"\x00"', "f:1:2: contains the character U+0000"),
        (r'"\ud800"', "f: contains half of a surrogate pair"),
        (b"\xff", "f: not UTF-8 text (byte 0)"),
    ],
)
def test_errors_name_file_line_and_column(text: str | bytes, said: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read_json(text, "f")
    assert caught.value.message.startswith(said)
    assert isinstance(caught.value, NotJson) == ("not JSON" in said)


def test_the_error_is_also_a_valueerror() -> None:
    with pytest.raises(ValueError, match="line 1, column 2: "):
        read_json("[NaN]")


@pytest.mark.medium
@given(VALUES)
def test_property_what_is_written_is_read(value: Any) -> None:
    assert read_json(json.dumps(value)) == value


@given(st.text(alphabet='ab:-[]{}0.1eNaN,"\\ud8', max_size=60))
def test_property_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(Unreadable):
        read_json(text)
