"""Times as RFC 3339 has them: whatever is taken for a moment can be read as one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.times import is_moment, parse_time, rfc3339


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31T23:59:59Z", "2026-01-31T23:59:59Z"),
        ("2026-01-31t23:59:59z", "2026-01-31T23:59:59Z"),
        ("2026-01-31T23:59:59.123456789Z", "2026-01-31T23:59:59Z"),
        ("2026-02-01T01:59:59+02:00", "2026-01-31T23:59:59Z"),
    ],
)
def test_moments(text: str, moment: str) -> None:
    assert is_moment(text)
    assert rfc3339(parse_time(text)) == moment


@pytest.mark.parametrize(
    "text",
    ["", "now", "2026-02-30T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01", "2026-01-01T00:00:00+99:99", "2026-01-01T00:00:61Z"],
)
def test_no_moments(text: str) -> None:
    assert not is_moment(text)


@pytest.mark.medium
@given(st.from_regex(r"\d{4}-[01]\d-[0-3]\d[Tt][012]\d:[0-6]\d:[0-6]\d(\.\d{1,12})?([Zz]|[+-]\d\d:\d\d)", fullmatch=True))
def test_is_moment_agrees_with_parse_time(text: str) -> None:
    try:
        moment = parse_time(text)
    except ValueError:
        moment = None
    assert is_moment(text) == (moment is not None)
