"""Reads the files of a prepared dataset once, in bounded memory: compares rows by digests, and counts the tokens of a sample."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from trainwright.initializers.data_report.figures import TokenFigures, token_figures
from trainwright.initializers.data_report.token_counts import Learned, RowRejected, RowTokens, count_tokens
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.json_lines import parse_json

Row = dict[str, Any]

MAX_COUNTED = 100_000
"""Rows of a split whose tokens are counted: a minute or so. Of more, evenly distributed ones."""
MAX_COMPARED = 2_000_000
"""Rows of a split that are compared with others, about 200 MB of digests."""
_BATCH = 256
_ESCAPED_SPACE = re.compile(r"(?<!\\)(?:\\[nrt])+")


class RowUnfit(InitializerError):
    """The training would fail at a row; the message names its file and number."""


def compare_rows(train: Path, test: Path) -> tuple[int, int, int]:
    """Return the duplicates of both files, and the held-out rows that are trained on, too. Raises OSError.

    Duplicates are equal; of rows that are trained on, only the words are, whatever white space, case and form of Unicode they have.
    """
    duplicates = [_count_duplicates(path) for path in (train, test)]
    return duplicates[0], duplicates[1], rows_in_common(train, test) if test.is_file() else 0


def rows_in_common(train: Path, test: Path, limit: int | None = None) -> int:
    """Return how many of the first `limit` rows of `test` have the words of a row of `train`. Raises OSError."""
    held_out = Counter(islice(_digests(test, _words), limit))
    trained = {digest for digest in _digests(train, _words) if digest in held_out}
    return sum(held_out[digest] for digest in trained)


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


def _count_duplicates(path: Path) -> int:
    """Return how many rows equal an earlier one."""
    if not path.is_file():
        return 0
    duplicates = 0
    seen: set[int] = set()
    for digest in _digests(path):
        duplicates += digest in seen
        seen.add(digest)
    return duplicates


def _digests(path: Path, form: Callable[[bytes], bytes] = bytes) -> Iterable[int]:
    with open(path, "rb") as lines:
        for line in islice(lines, MAX_COMPARED):
            yield int.from_bytes(hashlib.blake2b(form(line), digest_size=8).digest(), "big")


def _words(line: bytes) -> bytes:
    """Return a row without what makes no other row of it: the form of its Unicode, case, and white space, also as JSON escapes it."""
    text = line.decode("utf-8", "surrogatepass")
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return " ".join(_ESCAPED_SPACE.sub(" ", text.casefold()).split()).encode("utf-8", "surrogatepass")
