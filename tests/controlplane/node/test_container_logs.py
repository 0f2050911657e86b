"""What a container printed comes back byte for byte, each line with its stream and time, however and wherever it was written."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.errors import NotFound
from trainwright.controlplane.node import container_logs
from trainwright.controlplane.node.container import run_of
from trainwright.controlplane.node.container_logs import (
    ContainerLogs,
    Position,
    entries,
    read_blocks,
    segments,
    strip_headers,
    tail_position,
)
from trainwright.controlplane.node.supervisor import supervise

POD: dict[str, Any] = {"metadata": {"name": "p", "uid": "u"}}


def over() -> bool:
    return True


class Printed:
    """A log as the supervisor writes it, each write with the next second as its time."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch | None = None):
        run = run_of("main", 0, folder / "u")
        run.folder.mkdir(parents=True)
        (run.folder / "lock").touch()
        (run.folder / "exit.json").write_text('{"code": 0, "signal": 0, "finishedAt": 0}')
        self.path = run.log
        self.output = supervise.Output.__new__(supervise.Output)
        self.output.streams = {1: b"stdout", 2: b"stderr"}
        self.output.partial = {1: b"", 2: b""}
        self.output.flush_at = {1: 0.0, 2: 0.0}
        self.output.log = supervise.Segments(str(self.path))
        if monkeypatch:
            seconds = itertools.count(1)
            monkeypatch.setattr(supervise.time, "time_ns", lambda: next(seconds) * 1_000_000_000)

    def __call__(self, data: bytes, source: int = 1, *, flush: bool = False) -> Printed:
        self.output.take(source, data)
        if flush:
            self.output.flush_partial(source)
        return self


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Printed:
    return Printed(tmp_path, monkeypatch)


@pytest.fixture
def read(tmp_path: Path, printed: Printed) -> Any:
    return lambda **options: b"".join(ContainerLogs(tmp_path).open(POD, "main", **options))


def test_a_log_is_bounded_and_read_across_its_files(
    printed: Printed, read: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(supervise, "SEGMENT_BYTES", 1000)
    lines = [b"line %d\n" % number for number in range(200)]
    for line in lines:
        printed(line)
    numbers = [number for number, _ in segments(printed.path)]
    assert len(numbers) == 5
    assert numbers[0] > 0
    kept = read()
    assert b"".join(lines).endswith(kept)
    assert 2500 < sum(path.stat().st_size for _, path in segments(printed.path)) < 6000
    for count in (0, 1, 15, 40, 70):
        assert read(tail_lines=count) == b"".join(lines[200 - count :])
    assert read(tail_lines=10_000) == kept


def test_followers_go_from_file_to_file(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "SEGMENT_BYTES", 100)
    monkeypatch.setattr("trainwright.controlplane.node.container_logs.POLL_SECONDS", 0)
    done = False
    blocks = read_blocks(printed.path, Position(), lambda: done)
    assert next(blocks) == b""
    seen = b""
    for number in range(10):
        printed(b"line %d\n" % number)
        while f"line {number}\n".encode() not in seen:
            seen += strip_headers(next(blocks))
    done = True
    assert seen + strip_headers(b"".join(blocks)) == b"".join(b"line %d\n" % number for number in range(10))


@pytest.mark.parametrize("tail", [None, 3])
def test_a_log_may_be_removed_with_its_pod_between_two_steps_of_reading_it(
    printed: Printed, read: Any, monkeypatch: pytest.MonkeyPatch, tail: int | None
) -> None:
    printed(b"line\n")

    def list_then_remove(log: Path) -> list[tuple[int, Path]]:
        found = segments(log)
        shutil.rmtree(log.parent, ignore_errors=True)
        return found

    monkeypatch.setattr(container_logs, "segments", list_then_remove)
    assert read(tail_lines=tail, follow=True) == b""


@pytest.mark.parametrize("tail", [None, 10_000])
def test_a_reader_goes_on_after_a_file_that_is_rotated_away_under_it(
    printed: Printed, read: Any, monkeypatch: pytest.MonkeyPatch, tail: int | None
) -> None:
    monkeypatch.setattr(supervise, "SEGMENT_BYTES", 100)
    for number in range(4):
        printed(b"line %d\n" % number)
    oldest = segments(printed.path)[0][1]
    lost = strip_headers(oldest.read_bytes())

    def list_then_remove(log: Path) -> list[tuple[int, Path]]:
        found = segments(log)
        oldest.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(container_logs, "segments", list_then_remove)
    assert lost + read(tail_lines=tail) == b"".join(b"line %d\n" % number for number in range(4))


def test_a_line_torn_by_a_full_disk_does_not_tear_the_next(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    answers = iter([10])

    def filling(file: int, data: bytes) -> int:
        for room in answers:
            return write(file, bytes(data[:room]))
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(supervise.os, "write", filling)
        printed(b"lost\n")
    printed(b"kept\n")
    assert strip_headers(printed.path.read_bytes()).endswith(b"\nkept\n")


def test_a_log_of_an_older_version_is_read_as_it_is(printed: Printed, read: Any) -> None:
    printed.path.write_bytes(b"old\nlog")
    assert read() == read(timestamps=True) == read(stream="Stdout") == b"old\nlog"
    assert read(tail_lines=1) == b"log"


CHUNKS = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.text("ab\n\r\0é ", max_size=8).map(str.encode), st.booleans()), max_size=20
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("logs")
    return (home / str(number) for number in itertools.count())


@pytest.mark.medium
@given(CHUNKS, st.integers(0, 5), st.sampled_from([3, 100, container_logs.CHUNK]))
def test_property_whatever_is_printed_comes_back(
    folders: Iterator[Path], chunks: list[tuple[int, bytes, bool]], lines: int, size: int
) -> None:
    printed = Printed(next(folders))
    for source, data, flush in chunks:
        printed(data, source, flush=flush)
    for source in (1, 2):
        printed(b"", source, flush=True)
    written = b"".join(read_blocks(printed.path, Position(), over))
    for source, name in ((1, b"stdout"), (2, b"stderr")):
        assert b"".join(text for _, stream, text in entries(written) if stream == name) == b"".join(
            data for one, data, _ in chunks if one == source
        )
    whole = strip_headers(written)
    assert whole == b"".join(text for _, _, text in entries(written))
    with pytest.MonkeyPatch.context() as patch:  # the tail is looked for in parts of this size
        patch.setattr(container_logs, "CHUNK", size)
        position = tail_position(printed.path, lines)
    tail = strip_headers(b"".join(read_blocks(printed.path, position, over)))
    expected = whole.split(b"\n")
    unfinished = expected.pop()
    every = [line + b"\n" for line in expected] + ([unfinished] if unfinished else [])
    assert tail == b"".join(every[len(every) - lines :] if lines < len(every) else every)


@given(
    st.lists(st.sampled_from([b"2026-01-02T03:04:05.000000006Z stdout F ", b"P ", b"x", b"\n", b"\xff", b"std"])).map(b"".join)
)
def test_property_no_file_is_too_odd_to_read(block: bytes) -> None:
    assert strip_headers(block) == b"".join(text for _, _, text in entries(block))


def test_a_pod_of_another_node_has_no_log_here(tmp_path: Path) -> None:
    pod = {**POD, "spec": {"nodeName": "elsewhere"}}
    with pytest.raises(NotFound, match='pods "elsewhere" not found'):
        list(ContainerLogs(tmp_path).open(pod, "main"))
