"""Patterns of a failure policy are searched in linear time, with the syntax of Go; no pattern stops the control plane."""

import logging
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.controlplane.controllers.jobset.failure_policy import is_found

MESSAGE = "Pod failed with exit code 42 for container node at index 3 matching FailJob rule at index 0"
LONGEST = 32768
"""Bytes of a condition's message that admission lets pass."""


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"exit code (42|43)\b", True),
        (r"(?i)EXIT CODE", True),
        (r"^exit", False),
        (r"rule at index \d\z", True),  # the end of the text in Go's syntax, which `re` refuses
        (r"\pL+ failed", True),
        (r"(?=Pod)", False),  # no lookahead in Go
        ("(", False),
        (r"a{1001}", False),
        ("", True),
    ],
)
def test_the_syntax_is_that_of_go(pattern: str, expected: bool) -> None:
    assert is_found(pattern, MESSAGE) is expected


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a+)+$", "a" * 40 + "!"),
        ("(a|aa)+$", "a" * (LONGEST - 1) + "!"),
        ("(x+x+)+y", "x" * LONGEST),
        ("((a|b)*c?){900}", "ab" * (LONGEST // 2)),
        ("a" * 100_000, "a" * LONGEST),
        ("(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)[^-]$", "-" * LONGEST),
    ],
)
def test_no_pattern_takes_long(pattern: str, message: str) -> None:
    finished = threading.Event()

    def search() -> None:
        is_found(pattern, message)
        finished.set()

    threading.Thread(target=search, daemon=True).start()
    assert finished.wait(5)


def test_oversized_pattern_is_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert not is_found("b" * 1000, "b" * LONGEST)
    assert "event=message_pattern_ignored" in caplog.text
    assert len(caplog.text) < 1000


@pytest.mark.medium
@given(pattern=st.text(max_size=30) | st.text("ab()[]{}*+?|.^$\\d1,", max_size=40), message=st.text("ab1 ", max_size=2000))
def test_property_any_pattern_is_answered_at_once(pattern: str, message: str) -> None:
    began = time.process_time()
    assert is_found(pattern, message) in (True, False)
    assert time.process_time() - began < 1
