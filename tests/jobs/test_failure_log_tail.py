"""The last lines of a container for a report: really the last ones, however long they are, in bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from trainwright.jobs.logs import log_excerpt
from trainwright.jobs.logs.container_log import LineAssembler
from trainwright.jobs.logs.log_excerpt import last_printed

POD = {"metadata": {"name": "p", "namespace": "default"}}
STAMP = b"2026-11-25T10:00:00.000000001Z "
TRACEBACK = [b"Traceback (most recent call last):", b'  File "train.py", line 5', b"ValueError: bad batch in column 7"]


class Kubelet:
    """Answers as an API server does: the last lines, and of them the first bytes."""

    def __init__(self, *lines: bytes):
        self._lines = lines
        self.asked: list[dict[str, Any]] = []

    def logs(self, _name: str, _namespace: str, **options: Any) -> Iterator[bytes]:
        self.asked.append(options)
        tail = self._lines[-options["tail_lines"] :]
        whole = b"".join(STAMP + line + b"\n" for line in tail)[: options.get("limit_bytes")]
        yield from (whole[at : at + 65536] for at in range(0, len(whole), 65536))


def printed(kubelet: Any) -> list[str]:
    return last_printed(kubelet, POD, "node", previous=False)


def test_a_progress_bar_is_its_last_state() -> None:
    bar = b"".join(b"\rstep %5d of 200000" % number + b"#" * 30 for number in range(200_000))
    assert len(bar) > 5_000_000
    assert printed(Kubelet(b"begun", bar, *TRACEBACK))[:2] == ["begun", "step 199999 of 200000" + "#" * 30]


def test_fewer_lines_are_asked_for_if_they_are_too_long_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_excerpt, "_MAX_BYTES", 100_000)
    kubelet = Kubelet(*[b"y" * 400_000] * 8, *TRACEBACK, b"z" * 400_000)
    assert len(printed(kubelet)) == 1
    assert [options["tail_lines"] for options in kubelet.asked] == [200, 20, 5, 1]
    assert not any("limit_bytes" in options for options in kubelet.asked)
    endless = (b"x" * 65536 for _ in range(400))
    tracemalloc.start()
    assembler = LineAssembler(8192)
    assert [line for chunk in endless for line in assembler.feed(chunk)] == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(assembler.rest()) < 8192 + 100
    assert peak < 1_000_000


@pytest.mark.parametrize("size", [1, 3, 64])
def test_lines_do_not_depend_on_how_they_arrive(size: int) -> None:
    whole = b"short\n\n" + STAMP + b"a" * 90 + b"\r" + b"b" * 30 + b"\n" + b"c" * 300 + b"end\nrest"
    assembler = LineAssembler(80)
    lines = [line for at in range(0, len(whole), size) for line in assembler.feed(whole[at : at + size])]
    assert lines[:2] == [b"short", b""]
    assert lines[2].startswith(STAMP)
    assert lines[2].endswith(b"b" * 19)
    assert lines[3] == b"c" * 60 + b" ... (223 bytes left out) ... " + b"c" * 17 + b"end"
    assert assembler.rest() == b"rest"
