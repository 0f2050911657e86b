"""Lines in a temporary file: any part of them, at once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.ui.logs.line_file import STRIDE, LineFile

LIMIT = 1 << 20


@given(
    st.lists(st.lists(st.binary(max_size=3).map(lambda text: text.replace(b"\n", b"")), max_size=3 * STRIDE), max_size=4),
    st.data(),
)
def test_property_reads_return_what_was_appended(batches: list[list[bytes]], data: st.DataObject) -> None:
    file = LineFile()
    for batch in batches:
        file.append(batch)
    every = [line for batch in batches for line in batch]
    assert len(file) == len(every)
    start, end = sorted((data.draw(st.integers(0, len(every) + 2)), data.draw(st.integers(0, len(every) + 2))))
    assert file.read(start, end, max_bytes=LIMIT) == every[start:end]
    forward = list(file.blocks(start, end))
    assert b"".join(block.text for block in forward) == b"".join(line + b"\n" for line in every[start:end])
    assert all(block.count == block.text.count(b"\n") for block in forward)
    backward = list(file.blocks_backward(end))
    assert b"".join(block.text for block in reversed(backward)) == b"".join(line + b"\n" for line in every[:end])
    assert [block.first for block in backward] == sorted((block.first for block in backward), reverse=True)


def test_blocks_of_long_lines_are_bounded() -> None:
    file = LineFile()
    file.append([b"x" * 16384] * 200)
    assert max(len(block.text) for block in file.blocks(0, 200)) <= 16385 * STRIDE + 262144
    assert len(file.read(0, 200, max_bytes=50_000)) == 3
    assert len(file.read(0, 200, max_bytes=1)) == 1


def test_the_file_has_no_name_and_no_readers(tmp_path: Path) -> None:
    file = LineFile(tmp_path)
    file.append([b"secret"])
    assert list(tmp_path.iterdir()) == []
    assert os.fstat(file._file.fileno()).st_mode & 0o077 == 0


def test_a_closed_file_gives_its_space_back() -> None:
    file = LineFile()
    file.append([b"a"] * 100)
    file.close()
    file.append([b"b"])
    assert os.fstat(file._file.fileno()).st_size == 0
    assert file.read(0, 10, max_bytes=LIMIT) == []
    assert list(file.blocks_backward(10)) == []


@pytest.mark.medium
@pytest.mark.alone
def test_lines_of_200_megabytes_are_read_within_five_milliseconds() -> None:
    file = LineFile()
    line = b"step %d loss 0.123 " + b"x" * 80
    for first in range(0, 2_000_000, 10_000):
        file.append([line % number for number in range(first, first + 10_000)])
    assert file.size > 200_000_000
    took = []
    for start in range(0, 2_000_000, 98_765):
        begun = time.perf_counter()
        lines = file.read(start, start + 200, max_bytes=LIMIT)
        took.append(time.perf_counter() - begun)
        assert lines[0] == line % start
    assert sorted(took)[len(took) // 2] < 0.005
