"""Finds rows of prepared files that are the same: equal ones, and held-out ones with the words of one that is trained on."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from trainwright.initializers.rows import parse_json

MAX_COMPARED = 2_000_000
"""Rows of a split that are compared with others, about 200 MB of digests."""
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]")
"""Soft hyphens, joiners, marks of direction and the like."""


def compare_rows(train: Path, test: Path) -> tuple[int, int, int]:
    """Return the duplicates of both files, and the held-out rows that are trained on, too. Raises OSError.

    Duplicates are equal; of rows that are trained on, only the words are, whatever white space, case and form of Unicode they have.
    """
    duplicates = [_count_duplicates(path) for path in (train, test)]
    return duplicates[0], duplicates[1], rows_in_common(train, test, MAX_COMPARED) if test.is_file() else 0


def rows_in_common(train: Path, test: Path, limit: int | None = None) -> int:
    """Return how many of the first `limit` rows of `test` have the words of one of the first rows of `train`. Raises OSError."""
    held_out = Counter(islice(_digests(test, _words), limit))
    trained = {digest for digest in islice(_digests(train, _words), MAX_COMPARED) if digest in held_out}
    return sum(held_out[digest] for digest in trained)


def drop_rows_in_common(train: Path, test: Path) -> int:
    """Remove the rows of `train` that have the words of a row of `test`, and return how many there were. Raises OSError."""
    held_out, dropped = {*_digests(test, _words)}, 0
    kept = train.with_name(f"{train.name}.kept")
    with open(train, "rb") as lines, open(kept, "wb") as file:
        for line in lines:
            if _digest(_words(line)) in held_out:
                dropped += 1
            else:
                file.write(line)
    kept.replace(train)
    return dropped


def _count_duplicates(path: Path) -> int:
    """Return how many rows equal an earlier one."""
    if not path.is_file():  # no rows are held out
        return 0
    duplicates = 0
    seen: set[int] = set()
    for digest in islice(_digests(path), MAX_COMPARED):
        duplicates += digest in seen
        seen.add(digest)
    return duplicates


def _digests(path: Path, form: Callable[[bytes], bytes] = bytes) -> Iterable[int]:
    with open(path, "rb") as lines:
        for line in lines:
            yield _digest(form(line))


def _digest(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")


def _words(line: bytes) -> bytes:
    """Return a row without what makes no other row of it: white space, case, the form of its Unicode, and what is not seen of it."""
    return json.dumps(_plain(parse_json(line)), sort_keys=True, ensure_ascii=True).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        text = value if value.isascii() else _UNSEEN.sub("", unicodedata.normalize("NFKC", value))
        return " ".join(text.casefold().split())
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value
