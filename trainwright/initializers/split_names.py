"""Which split of a dataset each of its files belongs to, by the names of folders and files, as the library `datasets` decides it.

Source of the words, of the characters around them and of the order (shards, folders, files): `datasets.data_files`. Upper case counts,
too: rows for tests shall not be trained on because their file is called `Test.jsonl`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from trainwright.initializers.errors import InitializerError

TRAIN, TEST, VALIDATION = "train", "test", "validation"
_WORDS = {
    TRAIN: ("train", "training"),
    VALIDATION: ("validation", "valid", "dev", "val"),
    TEST: ("test", "testing", "eval", "evaluation"),
}
_SPLITS = {word: split for split, words in _WORDS.items() for word in words}
_HELD_OUT = {word for word, split in _SPLITS.items() if split != TRAIN}
_NEUTRAL_WORDS = ("data", "dataset", "files", "rows", "set", "split", "splits")
_BETWEEN_WORDS = re.compile(r"[-._ /0-9]+")
_SHARD = re.compile(r"([^-/]+)-[0-9]{5}-of-[0-9]{5}(?:[-.].*)?", re.DOTALL)
"""The names that the `datasets` library writes."""
_PART = re.compile(r"([^\[\]+]+)\[(?:(-?\d+(?:_\d+)*)(%?))?:(?:(-?\d+(?:_\d+)*)(%?))?\]", re.ASCII)
"""A split and a part of its rows."""
_MAX_DIGITS = 15

Splits = dict[str, list[str]]


@dataclass(frozen=True)
class SplitPart:
    """A part of the rows of a split, as the library `datasets` reads it: percentages are rounded to the closest row."""

    start: int | None
    stop: int | None
    is_percent: bool

    def bounds(self, count_rows: Callable[[], int]) -> tuple[int, int | None]:
        """Return the first row, and the one after the last; None: to the end. The rows are counted only if that is needed."""
        if not self.is_percent and min(self.start or 0, self.stop or 0) >= 0:
            return self.start or 0, self.stop
        total = count_rows()
        given = (0 if self.start is None else self.start, (100 if self.is_percent else total) if self.stop is None else self.stop)
        start, stop = (round(each * total / 100) if self.is_percent else each for each in given)
        return (max(total + start, 0) if start < 0 else start), (max(total + stop, 0) if stop < 0 else stop)


def parse_split(split: str) -> tuple[str, SplitPart | None]:
    """Return the name of a split, and the part of it that follows in brackets, such as `train[:50%]` or `train[100:200]`.

    Raises InitializerError for a combination of splits, and for a part that cannot be read.
    """
    if "+" in split:
        raise InitializerError(
            f"split={split!r} combines splits, which is not supported: name one, or prepare files that have all rows"
        )
    if "[" not in split:
        return split, None
    found = _PART.fullmatch(split.strip())
    if found is None:
        raise InitializerError(
            f"split={split!r} cannot be read; expected a name and a part of it, as in train[:50%] or train[100:200]"
        )
    name, start, start_percent, stop, stop_percent = found.groups()
    if max(map(len, filter(None, (start, stop))), default=0) > _MAX_DIGITS:
        raise InitializerError(f"split={split[:60]!r}: a number of rows has at most {_MAX_DIGITS} digits")
    part = SplitPart(int(start) if start else None, int(stop) if stop else None, bool(start_percent or stop_percent))
    if part.is_percent and max(abs(part.start or 0), abs(part.stop or 0)) > 100:
        raise InitializerError(f"split={split!r}: percentages are between -100 and 100")
    return name.strip(), part


def splits_of(names: Iterable[str], below: str = "", *, all_files: bool = False) -> Splits:
    """Return the files by split, which are relative to the folder `below`.

    The first of these that marks files to train on decides which are: shards in `data/`, folders (`train/`), file names
    (`train.jsonl`). What marks itself as held out is, wherever; other files are in no split: `all.jsonl` beside `train.jsonl` may have
    the rows of `test.jsonl`. If nothing is marked to train on, or with `all_files`, what is not held out is trained on. Only shards,
    as `NAME-00000-of-00001`, have other splits than `train`, `test` and `validation`.
    """
    paths = {name: PurePosixPath(name.removeprefix(below)) for name in names}
    splits: dict[str, str] = {}
    for split_of in (_split_of_shard, _split_of_folders, _split_of_file):
        has_training = not all_files and not all(map(is_held_out, splits.values()))
        marked = {name: split_of(path) for name, path in paths.items() if name not in splits}
        splits |= {name: split for name, split in marked.items() if split and (is_held_out(split) or not has_training)}
    if all_files or all(map(is_held_out, splits.values())):
        splits = {name: splits.get(name, TRAIN) for name in paths}
    return _grouped(splits)


def is_held_out(split: str) -> bool:
    """Whether the rows of a split are for tests, by its name."""
    return any(word in _HELD_OUT for word in _words(split))


def variant_of(split: str) -> frozenset[str]:
    """Return what a name says beside the kind of split: `sft` for `train_sft` and `test_sft`."""
    return frozenset(_words(split)) - _SPLITS.keys()


def is_folder_of_split(name: str) -> bool:
    """Whether a folder is named for a split, as `train` or `test-data`, or for data in general, and thus is no subset."""
    words = {*_words(name)}
    return bool(words) and words <= {*_SPLITS, *_NEUTRAL_WORDS}


def _split_of_shard(path: PurePosixPath) -> str:
    return _split_of_file(path) if path.parent.name == "data" and _SHARD.fullmatch(path.name) else ""


def _split_of_folders(path: PurePosixPath) -> str:
    return _split_of_words(str(path.parent))


def _split_of_file(path: PurePosixPath) -> str:
    shard = _SHARD.fullmatch(path.name)
    return shard[1] if shard and variant_of(shard[1]) else _split_of_words(path.name)


def _split_of_words(name: str) -> str:
    """Return the split that a name marks, a held-out one first: `train_test.jsonl` may have rows of both. Empty if it marks none."""
    found = [word for word in _words(name) if word in _SPLITS]
    return next((_SPLITS[word] for word in found if word in _HELD_OUT), TRAIN if found else "")


def _grouped(splits: dict[str, str]) -> Splits:
    grouped: Splits = {}
    for name, split in splits.items():
        grouped.setdefault(split, []).append(name)
    return {split: sorted(names) for split, names in sorted(grouped.items())}


def _words(name: str) -> list[str]:
    return [word for word in _BETWEEN_WORDS.split(name.lower()) if word]
