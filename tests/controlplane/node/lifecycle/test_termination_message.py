"""The last words of containers, and their limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.controlplane.node.lifecycle.termination_message import (
    FILE_BYTES,
    LOG_BYTES,
    LOG_LINES,
    POD_BYTES,
    limit_messages,
    termination_message,
)

FALLBACK = {"terminationMessagePolicy": "FallbackToLogsOnError"}
LINES = b"".join(b"line %d\n" % number for number in range(100))


@pytest.mark.parametrize(
    ("container", "code", "file", "log", "message"),
    [
        pytest.param({}, 1, b"", b"log\n", "", id="the log does not count"),
        pytest.param({"terminationMessagePolicy": "File"}, 1, b"", b"log\n", "", id="nor with that policy"),
        pytest.param({}, 0, b"done\n", b"", "done\n", id="a file of a success"),
        pytest.param({}, 1, b"why\n", b"log\n", "why\n", id="a file of a failure"),
        pytest.param(FALLBACK, 1, b"why\n", b"log\n", "why\n", id="a file stands before the log"),
        pytest.param(FALLBACK, 1, b"", b"log\n", "log\n", id="the log of a failure"),
        pytest.param(FALLBACK, 0, b"", b"log\n", "", id="not of a success"),
        pytest.param(FALLBACK, 1, b"", b"", "", id="no log"),
        pytest.param(FALLBACK, 1, b"", b"no end", "no end", id="an unfinished line"),
        pytest.param({}, 1, b"caf\xc3\xa9 \xff", b"", "café \ufffd", id="no text"),
    ],
)
def test_termination_message_comes_from_the_file_or_the_log(
    container: dict[str, Any], code: int, file: bytes, log: bytes, message: str
) -> None:
    assert termination_message(container, code, file, log) == message


def test_the_end_of_a_file_is_kept() -> None:
    assert termination_message({}, 1, b"x" * 5000 + b"the end", b"") == "x" * (FILE_BYTES - 7) + "the end"
    assert FILE_BYTES == 4096


def test_of_a_log_the_last_lines_are_kept() -> None:
    assert termination_message(FALLBACK, 1, b"", LINES) == "".join(f"line {number}\n" for number in range(20, 100))
    assert termination_message(FALLBACK, 1, b"", LINES + b"more").count("\n") == LOG_LINES - 1
    assert LOG_LINES == 80


def test_or_its_last_bytes() -> None:
    message = termination_message(FALLBACK, 1, b"", b"".join(b"%04d " % number + b"x" * 95 + b"\n" for number in range(50)))
    assert len(message) == LOG_BYTES == 2048
    assert message.endswith("x\n")
    assert message.startswith("x"), "in the middle of a line"


@pytest.mark.parametrize(("containers", "limit"), [(1, 12288), (2, 6144), (3, 4096), (5, 2457)])
def test_the_containers_of_a_pod_share_its_limit(containers: int, limit: int) -> None:
    long, short = {"terminated": {"message": "x" * 20_000}}, {"terminated": {"message": "short"}}
    statuses: list[dict[str, Any]] = [{"name": str(number), "state": dict(short)} for number in range(containers)]
    statuses[0] = {"state": {"terminated": dict(long["terminated"])}, "lastState": {"terminated": dict(long["terminated"])}}
    limit_messages(statuses)
    assert statuses[0]["state"]["terminated"]["message"] == statuses[0]["lastState"]["terminated"]["message"] == "x" * limit
    assert [status["state"]["terminated"]["message"] for status in statuses[1:]] == ["short"] * (containers - 1)


@pytest.mark.medium
@given(texts=st.lists(st.text(max_size=8000), min_size=1, max_size=6))
def test_property_messages_fit_and_keep_their_beginning(texts: list[str]) -> None:
    statuses = [{"state": {"terminated": {"message": text}}} for text in texts]
    limit_messages(statuses)
    for text, status in zip(texts, statuses, strict=True):
        message = status["state"]["terminated"]["message"]
        assert len(message.encode()) <= POD_BYTES // len(texts) + 2, "a letter that was cut becomes one of three bytes"
        assert text.startswith(message.removesuffix("\ufffd")) or message == text


@given(log=st.binary(max_size=300).map(lambda data: data * 12))
def test_property_the_fallback_is_an_end_of_the_log(log: bytes) -> None:
    message = termination_message(FALLBACK, 1, b"", log)
    kept = [end for end in range(len(log) + 1) if log[end:].decode("utf-8", "replace") == message]
    assert kept
    end = min(kept)
    assert len(log) - max(kept) <= LOG_BYTES
    assert end == 0 or len(log) - end >= LOG_BYTES - 3 or log[end - 1 :].count(b"\n") >= LOG_LINES
