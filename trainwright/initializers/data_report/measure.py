"""Reads the files of a prepared dataset once, in bounded memory: compares rows by digests, and counts the tokens of a sample."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from trainwright.initializers.data_report.figures import TokenFigures, token_figures
from trainwright.initializers.data_report.token_counts import RowRejected, RowTokens, count_tokens
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.json_lines import parse_json

Row = dict[str, Any]

MAX_COUNTED = 100_000
"""Rows of a split whose tokens are counted: a minute or so. Of more, evenly distributed ones."""
MAX_COMPARED = 2_000_000
"""Rows of a split that are compared with others, about 200 MB of digests."""
_BATCH = 256


class RowUnfit(InitializerError):
    """The training would fail at a row; the message names its file and number."""


def compare_rows(train: Path, test: Path) -> tuple[int, int, int]:
    """Return the duplicates of both files, and the held-out rows that are trained on, too. Raises OSError."""
    trained: set[int] = set()
    held_out: set[int] = set()
    duplicates = [_count_duplicates(path, seen) for path, seen in ((train, trained), (test, held_out))]
    overlap = sum(digest in trained for digest in _digests(test)) if test.is_file() else 0
    return duplicates[0], duplicates[1], overlap


def measure_tokens(path: Path, rows: int, tokenizer: Any, max_length: int) -> TokenFigures | None:
    """Count the tokens of a file with this number of rows. Raises RowUnfit for a row that the chat template rejects, OSError."""
    totals: list[int] = []
    cut = emptied = 0
    for counts in _counted(path, -(-rows // MAX_COUNTED), tokenizer):
        totals += (each.total for each in counts)
        cut += sum(each.is_cut(max_length) for each in counts)
        emptied += sum(each.is_emptied(max_length) for each in counts)
    return token_figures(totals, cut, emptied)


def first_row(path: Path) -> Row:
    """Return the first row of a prepared file, which has one. Raises OSError."""
    with open(path, "rb") as lines:
        row: Row = parse_json(next(lines))
    return row


def _counted(path: Path, step: int, tokenizer: Any) -> Iterator[list[RowTokens]]:
    with open(path, "rb") as lines:
        chosen = islice(lines, 0, None, max(step, 1))
        number = 0
        while batch := [parse_json(line) for line in islice(chosen, _BATCH)]:
            try:
                yield count_tokens(tokenizer, batch)
            except RowRejected as error:
                raise RowUnfit(f"{path.name} row {(number + error.row) * max(step, 1) + 1}: {error}") from error
            number += len(batch)


def _count_duplicates(path: Path, seen: set[int]) -> int:
    """Add the digests of a file's rows to `seen`. Returns how many were there already."""
    if not path.is_file():
        return 0
    duplicates = 0
    for digest in _digests(path):
        duplicates += digest in seen
        seen.add(digest)
    return duplicates


def _digests(path: Path) -> Iterable[int]:
    with open(path, "rb") as lines:
        for line in islice(lines, MAX_COMPARED):
            yield int.from_bytes(hashlib.blake2b(line, digest_size=8).digest(), "big")
