"""Integers in text: what Go's strconv reads, and nothing that Python's `int` reads besides."""

import pytest

from trainwright.api.integers import parse_count, parse_int64


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("+7", 7),
        ("-7", -7),
        ("007", 7),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        (str(2**63), None),
        ("9" * 5000, None),
        ("", None),
        ("-", None),
        ("²", None),
        ("٣", None),
        ("1_000", None),
        (" 1", None),
        ("1\n", None),
        ("0x10", None),
        ("1.0", None),
    ],
)
def test_integers(text: str, number: int | None) -> None:
    assert parse_int64(text) == number
    assert parse_count(text) == (None if text[:1] in ("+", "-") else number)
