"""orjson changes neither a value nor a byte: the bytes of a row decide whether it is held out."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.initializers.rows import json_line, parse_json

TEXTS = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
MESSAGES = st.lists(st.dictionaries(TEXTS, TEXTS, max_size=3), max_size=3)


def reference(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n"


@pytest.mark.medium
@given(st.dictionaries(TEXTS, TEXTS | MESSAGES | VALUES, max_size=4))
def test_a_row_is_written_with_the_bytes_of_pythons_json(row: dict[str, Any]) -> None:
    assert json_line(row) == reference(row)


def test_control_characters_are_escaped_as_ever() -> None:
    row = {"text": "".join(map(chr, range(0x300))) + "\u2028\u2029\ufeff\U0001f600"}
    assert json_line(row) == reference(row)


@pytest.mark.medium
@given(VALUES)
def test_a_value_is_read_as_python_does(value: Any) -> None:
    text = json.dumps(value).encode()
    parsed = parse_json(text)
    assert parsed == json.loads(text)
    assert json.dumps(parsed) == json.dumps(json.loads(text))  # also tells 1 from 1.0 and -0.0 from 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"18446744073709551616", 2**64),
        (b'{"a": [-9223372036854775809]}', {"a": [-(2**63) - 1]}),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b'"\\ud83d"', "\ud83d"),
        (b"1e999", math.inf),
        (b"[" * 500 + b"]" * 500, None),
    ],
)
def test_values_that_orjson_reads_differently_are_read_as_python_does(text: bytes, value: Any) -> None:
    assert parse_json(text) == (value if value is not None else json.loads(text))


def test_nan_is_read_as_python_does() -> None:
    assert math.isnan(parse_json(b"[NaN]")[0])


@pytest.mark.parametrize("text", [b"", b"{", b"{'a': 1}", b'{"a": 01}', b"[1,]", b'"\x01"', b"nul"])
def test_errors_are_those_of_python(text: bytes) -> None:
    with pytest.raises(ValueError) as expected:  # noqa: PT011
        json.loads(text)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        parse_json(text)
    assert str(caught.value) == str(expected.value)


def test_half_of_a_surrogate_pair_cannot_be_written() -> None:
    for row in ({"text": "\ud83d"}, {"messages": [{"role": "user", "content": "\ud83d"}]}):
        with pytest.raises(UnicodeEncodeError):
            json_line(row)
