"""Search in a spooled log: lines with a hit, in portions."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.ui.logs import search as module
from trainwright.ui.logs.line_file import LineFile
from trainwright.ui.logs.search import Pattern, search_backward, search_forward


def file_of(lines: list[str]) -> LineFile:
    file = LineFile()
    file.append([line.encode() for line in lines])
    return file


def found(lines: list[str], text: str, *, expression: bool = False, case: bool = False) -> list[int]:
    file, pattern = file_of(lines), Pattern(text, is_expression=expression, is_case_sensitive=case)
    forward = search_forward(file, pattern, 0, len(lines), limit=1000)
    backward = search_backward(file, pattern, len(lines), limit=1000)
    assert forward["lines"] == backward["lines"][::-1]
    assert forward["done"]
    assert backward["done"]
    return forward["lines"]


LOG = ["Epoch 1", "Error: x", "", "an error, and an error", "EPOCH 2", "größe Ärger"]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("error", {}, [1, 3]),
        ("error", {"case": True}, [3]),
        ("ärger", {}, [5]),
        ("a.*", {}, []),
        ("^epoch \\d$", {"expression": True}, [0, 4]),
        ("^$", {"expression": True}, [2]),
        ("x\\s*an", {"expression": True}, []),
        ("\\AError", {"expression": True}, [1]),
        ("x\\z", {"expression": True}, [1]),
        ("(?-m)^an", {"expression": True}, [3]),
        ("x|2", {"expression": True}, [1, 4]),
        (".*", {"expression": True}, [0, 1, 2, 3, 4, 5]),
        ("1\nError", {}, []),
    ],
)
def test_search_reports_the_lines_of_its_hits(text: str, options: dict[str, bool], expected: list[int]) -> None:
    assert found(LOG, text, **options) == expected


@given(
    st.lists(st.text("ab\r\t é", max_size=5), max_size=300), st.sampled_from(["a", "ab", "B", "^a", "b$", "[^a]", "(a|é)+$", ""])
)
def test_property_hits_are_those_of_each_line(lines: list[str], text: str) -> None:
    if not text:
        with pytest.raises(ValueError, match="expected 1 to 1000 characters"):
            found(lines, text)
        return
    expected = re.compile(text.replace("$", r"\Z"), re.IGNORECASE)
    assert found(lines, text, expression=True) == [number for number, line in enumerate(lines) if expected.search(line)]
    literal = re.compile(re.escape(text), re.IGNORECASE)
    assert found(lines, text) == [number for number, line in enumerate(lines) if literal.search(line)]


def test_search_stops_at_its_limit_and_goes_on() -> None:
    file, pattern = file_of(["x", "y", "x", "x"]), Pattern("x", is_expression=False, is_case_sensitive=False)
    assert search_forward(file, pattern, 0, 4, limit=2) == {"lines": [0, 2], "next": 3, "done": False}
    assert search_forward(file, pattern, 3, 4, limit=2) == {"lines": [3], "next": 4, "done": True}
    assert search_backward(file, pattern, 3, limit=1) == {"lines": [2], "next": 2, "done": False}
    assert search_backward(file, pattern, 2, limit=5) == {"lines": [0], "next": 0, "done": True}
    assert search_forward(file, pattern, 9, 4, limit=2) == {"lines": [], "next": 9, "done": True}


@pytest.mark.parametrize("text", ["(", "a)(b", "a{2,1}", "\\1", "(?=a)", "x" * 1001])
def test_an_invalid_expression_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match="text: "):
        Pattern(text, is_expression=True, is_case_sensitive=False)


def test_a_portion_is_bounded_in_time_and_the_first_hits_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORK_SECONDS", 0.0)
    file = file_of(["x" * 1000] * 1000 + ["needle"])
    pattern, start, portions = Pattern("needle", is_expression=False, is_case_sensitive=False), 0, 0
    while True:
        hits = search_forward(file, pattern, start, len(file), limit=10)
        start, portions = hits["next"], portions + 1
        if hits["done"]:
            break
    assert hits["lines"] == [1000]
    assert 3 <= portions <= 6


@pytest.mark.medium
@pytest.mark.alone
@pytest.mark.parametrize("text", ["missing", "(a+)+$", "(x+x+)+y", "^.*loss.*nan.*$", "step"])
def test_a_portion_over_a_large_log_takes_less_than_100_milliseconds(text: str) -> None:
    file = file_of([f"step {number} loss 0.123 {'x' * 80}" for number in range(500_000)])
    begun = time.perf_counter()
    search_forward(file, Pattern(text, is_expression=True, is_case_sensitive=False), 0, len(file), limit=5000)
    assert time.perf_counter() - begun < 0.1
