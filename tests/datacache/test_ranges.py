"""Every row of a table belongs to exactly one worker and one reader, whatever the numbers of both."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.datacache.ranges import DataFile, RowRange, share_out, slice_of

COUNTS = st.lists(st.integers(0, 50), max_size=12)


@given(total=st.integers(0, 2000), readers=st.integers(1, 70))
def test_slices_of_readers_cover_each_row_once(total: int, readers: int) -> None:
    slices = [rows for rank in range(readers) if (rows := slice_of(total, readers, rank)) is not None]
    assert [row for rows in slices for row in range(rows.start, rows.end + 1)] == list(range(total))


def test_slices_are_those_of_trainers_cache() -> None:
    assert [slice_of(5, 4, rank) for rank in range(4)] == [RowRange(0, 1), RowRange(2, 3), RowRange(4, 4), None]
    assert slice_of(100, 4, 1) == RowRange(25, 49)


@pytest.mark.parametrize(("readers", "rank"), [(2, 2), (2, -1), (0, 0)])
def test_slice_of_a_missing_reader_is_refused(readers: int, rank: int) -> None:
    with pytest.raises(ValueError, match=f"no reader {rank} of {readers}"):
        slice_of(10, readers, rank)


@given(counts=COUNTS, workers=st.integers(1, 6))
def test_shares_have_each_file_once_and_ranges_without_gaps(counts: list[int], workers: int) -> None:
    files = [DataFile(f"{number}.parquet", rows) for number, rows in enumerate(counts)]
    shares = share_out(files, workers)
    assert len(shares) == workers
    assert sorted(file.path for share in shares for file in share.files) == sorted(file.path for file in files)
    assert [len(share.rows) if share.rows else 0 for share in shares] == [sum(f.rows for f in share.files) for share in shares]
    ranges = [share.rows for share in shares if share.rows is not None]
    assert [row for rows in ranges for row in range(rows.start, rows.end + 1)] == list(range(sum(counts)))


def test_largest_file_goes_to_the_worker_with_the_fewest_rows() -> None:
    shares = share_out([DataFile("a", 3), DataFile("b", 5), DataFile("c", 4)], 2)
    assert [[file.path for file in share.files] for share in shares] == [["b"], ["c", "a"]]
    assert [share.rows for share in shares] == [RowRange(0, 4), RowRange(5, 11)]


def test_ticket_is_two_little_endian_numbers() -> None:
    assert RowRange(1, 258).ticket() == b"\x01" + b"\0" * 7 + b"\x02\x01" + b"\0" * 6
    assert RowRange.from_ticket(RowRange(3, 9).ticket()) == RowRange(3, 9)


@pytest.mark.parametrize("ticket", [b"", b"\0" * 15, RowRange(0, 0).ticket() + b"\0", RowRange(5, 4).ticket()])
def test_ticket_of_another_length_or_order_is_refused(ticket: bytes) -> None:
    with pytest.raises(ValueError, match="ticket"):
        RowRange.from_ticket(ticket)
