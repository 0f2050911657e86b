"""Chunks of a log become lines as a terminal shows them."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.ui.logs.line_splitter import MAX_LINE_BYTES, LineSplitter

STAMP = b"2026-01-02T03:04:05.123456789Z"


def split(*chunks: bytes) -> list[tuple[bytes, bytes]]:
    splitter, found = LineSplitter(), []
    for chunk in chunks:
        lines = splitter.feed(chunk)
        found += list(zip(lines.stamps, lines.texts, strict=True))
    rest = splitter.rest()
    return found + list(zip(rest.stamps, rest.texts, strict=True))


def texts(*lines: bytes) -> list[bytes]:
    return [text for _, text in split(b"".join(STAMP + b" " + line + b"\n" for line in lines))]


pieces = st.lists(st.sampled_from([b"a", b"\n", b" ", STAMP, b"\r", b"\x1b[1m", b"unable"]), max_size=12).map(b"".join)


@given(st.lists(st.builds(lambda text: text.replace(b"\n", b""), pieces), max_size=6), st.lists(st.integers(0, 300), max_size=5))
def test_property_chunk_borders_do_not_matter(lines: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(STAMP + b" " + line + b"\n" for line in lines)
    borders = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    chunks = [whole[start:end] for start, end in itertools.pairwise(borders)]
    assert split(*chunks) == split(whole)
    assert len(split(whole)) == len(lines)


def test_lines_without_a_timestamp_are_kept_and_messages_of_the_kubelet_are_not() -> None:
    block = STAMP + b" one\ncontinued\nunable to retrieve container logs for containerd://1\n" + STAMP + b" two\n"
    assert split(block) == [(STAMP, b"one"), (b"", b"continued"), (STAMP, b"two")]


def test_timestamps_of_the_program_stay_in_the_text() -> None:
    assert texts(STAMP + b" mine", b"") == [STAMP + b" mine", b""]


def test_progress_bars_are_shown_in_their_last_state() -> None:
    assert texts(b" 10%\r 50%\r100%", b"done\r", b"50%\r   \r", b"\r\r") == [b"100%", b"done", b"50%", b""]


def test_a_progress_bar_that_has_not_ended_is_shown() -> None:
    assert split(STAMP + b" 1%\r2%", b"\r3%") == [(STAMP, b"3%")]


def test_escape_sequences_are_left_out() -> None:
    hostile = b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link \x1bPq\x1b\\ \x1b[2J\x1b(Bend\x1b"
    assert texts(hostile) == [b"red link  end"]


def test_long_lines_are_cut_with_a_mark() -> None:
    [line] = texts(b"begin" + b"x" * 50_000 + b"end")
    assert line.startswith(b"begin")
    assert line.endswith(b"end")
    assert b"bytes left out" in line
    assert len(line) < MAX_LINE_BYTES + 100


def test_a_line_of_100_megabytes_takes_little_memory() -> None:
    splitter = LineSplitter()
    splitter.feed(STAMP + b" begin")
    for _ in range(100):
        splitter.feed(b"x" * 1_000_000)
    assert len(splitter.rest().texts[0]) < MAX_LINE_BYTES + 100
    found = splitter.feed(b"end\n" + STAMP + b" next\n")
    assert found.texts[0].endswith(b"end")
    assert found.texts[1] == b"next"


def test_a_progress_bar_of_many_megabytes_shows_its_last_state() -> None:
    splitter = LineSplitter()
    splitter.feed(STAMP + b" ")
    for number in range(20_000):
        splitter.feed(b"\r%5d/20000 [=====>      ]" % number)
    assert splitter.rest().texts[0].strip() == b"19999/20000 [=====>      ]"


@pytest.mark.medium
@pytest.mark.alone
def test_a_log_is_split_at_50_megabytes_per_second() -> None:
    block = b"".join(STAMP + b" step %d loss 0.123 " % number + b"x" * 60 + b"\n" for number in range(10_000))
    splitter = LineSplitter()
    begun = time.process_time()
    for _ in range(20):
        splitter.feed(block)
    assert 20 * len(block) / (time.process_time() - begun) > 50_000_000
