"""Reads the files of a prepared dataset once, in bounded memory, and counts the tokens of a sample of the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from trainwright.initializers.data_report.figures import TokenFigures, token_figures
from trainwright.initializers.data_report.token_counts import Learned, RowRejected, RowTokens, count_tokens
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.rows import parse_json

Row = dict[str, Any]

MAX_COUNTED = 100_000
"""Rows of a split whose tokens are counted: a minute or so. Of more, evenly distributed ones."""
_BATCH = 256


class RowUnfit(InitializerError):
    """The training would fail at a row; the message names its file and number."""


def measure_tokens(
    path: Path, rows: int, tokenizer: Any, max_length: int, learned: Learned
) -> tuple[TokenFigures | None, Counter[int]]:
    """Count the tokens of a file with this number of rows, and the special tokens that rows end with, by their ids.

    Raises RowUnfit for a row that the chat template rejects, or with a token without an embedding, OSError.
    """
    totals: list[int] = []
    numbers: Counter[str] = Counter()
    special: Counter[int] = Counter()
    for counts in _counted(path, -(-rows // MAX_COUNTED), tokenizer, learned):
        totals += (each.total for each in counts)
        for each in counts:
            numbers["cut"] += each.is_cut(max_length)
            numbers["emptied"] += each.is_emptied(max_length)
            numbers["cut_answers"] += each.has_answer and each.is_cut(max_length)
            numbers["ended"] += each.learns_end(max_length)
        special.update(each.last_special for each in counts)
    return token_figures(totals, **numbers), special


def first_row(path: Path) -> Row:
    """Return the first row of a prepared file, which has one. Raises OSError."""
    with open(path, "rb") as lines:
        row: Row = parse_json(next(lines))
    return row


def _counted(path: Path, step: int, tokenizer: Any, learned: Learned) -> Iterator[list[RowTokens]]:
    with open(path, "rb") as lines:
        chosen = islice(lines, 0, None, max(step, 1))
        number = 0
        while batch := [parse_json(line) for line in islice(chosen, _BATCH)]:
            try:
                yield count_tokens(tokenizer, batch, learned)
            except RowRejected as error:
                raise RowUnfit(f"{path.name} row {(number + error.row) * max(step, 1) + 1}: {error}") from error
            number += len(batch)
