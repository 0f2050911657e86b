"""Chooses the files of one subset and split of a dataset. Nothing is mixed that its publisher keeps apart.

The subsets are those that the dataset's card names, else its top-level folders. The names of folders and files decide the split, as
in the library `datasets`. Source of the words, of the characters around them and of the order (shards, folders, files):
`datasets.data_files`. Upper case counts, too: rows for tests shall not be trained on because their file is called `Test.jsonl`. The
functions are pure: names in, names out.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Any

from trainwright.initializers.dataset_card import CARD, Subset
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.rows import BY_SUFFIX, Reading

ALL = "*"
"""As a subset: all files, whatever the card or the folders say."""
DEFAULT = "default"
_MAX_LISTED = 30
_WILDCARDS = frozenset("*?[")
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
class Selection:
    """The files to train on and those to hold out. `subset` and `split` are empty where there was nothing to choose.

    `left_out` has the splits of the subset that are used for neither, `unread` its files that are in none.
    """

    train: tuple[str, ...]
    held_out: tuple[str, ...] = ()
    subset: str = ""
    split: str = ""
    left_out: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    reading: Reading = BY_SUFFIX
    """How to read the files, as the card says it."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What exactly was taken, if the URI does not say it; for the receipt."""


def select_files(
    names: Iterable[str], card: tuple[Subset, ...] = (), subset: str = "", split: str = "", where: str = "the dataset"
) -> Selection:
    """Select among the names of data files, which are relative to the dataset. `where` names the dataset in errors.

    Without `subset`, the default one of the card or the only one is taken; without `split`, the split `train`.
    Raises InitializerError, which lists the subsets or splits, if the choice is missing or unknown.
    """
    names = sorted(names)
    unread: list[str] = []
    reading = BY_SUFFIX
    if subset == ALL:
        chosen, splits = ALL, splits_of(names, all_files=True)
    elif card:
        found = _chosen_subset(card, subset, where)
        chosen = found.name if len(card) > 1 or subset else ""
        splits, unread = _from_card(names, found, where)
        reading = found.reading
    else:
        chosen, splits, unread = _from_folders(names, subset, where)
    train = _train_splits(splits, split, where)
    held_out = _held_out_splits(splits, train)
    left_out = tuple(name for name in splits if name not in train and name not in held_out)
    return Selection(
        tuple(sorted({name for each in train for name in splits[each]})),
        tuple(sorted({name for each in held_out for name in splits[each]})),
        chosen,
        train[0] if split or left_out else "",
        left_out,
        tuple(unread),
        reading,
    )


def matches_glob(pattern: str, name: str) -> bool:
    """Whether a path matches a pattern in which `*` stays within a folder and `**` does not."""
    parts = name.split("/")
    reached = {0}
    for part in pattern.split("/"):
        if not reached:  # nothing can match any more
            return False
        if part == "**":
            reached = set(range(min(reached), len(parts) + 1))
        else:
            reached = {index + 1 for index in reached if index < len(parts) and fnmatch.fnmatchcase(parts[index], part)}
    return len(parts) in reached


def _from_card(names: list[str], found: Subset, where: str) -> tuple[Splits, list[str]]:
    unread: list[str] = []
    if found.patterns:
        splits = {split: _matching(names, patterns) for split, patterns in found.patterns}
        splits = {split: files for split, files in splits.items() if files}
    else:
        below = f"{found.folder}/" if found.folder else ""
        splits, unread = _splits_and_unread([name for name in names if name.startswith(below)], below)
    if not splits:
        patterns = ", ".join([pattern for _, patterns in found.patterns for pattern in patterns][:3]) or f"{found.folder}/**"
        raise InitializerError(
            f"{where}: {CARD} names {patterns} for the subset {found.name!r}, but there is no such file of a known type; "
            f"subset={ALL} takes all files"
        )
    tables = [name for files in splits.values() for name in files if name.lower().removesuffix(".gz").endswith((".csv", ".tsv"))]
    if found.unsupported and tables:
        raise InitializerError(
            f"{where}: {CARD} names {', '.join(found.unsupported)} for the subset {found.name!r}, which changes the rows of "
            f"{tables[0]} and is not supported: convert the file to JSON Lines, or take it as it is with subset={ALL}"
        )
    return splits, unread


def _chosen_subset(card: tuple[Subset, ...], subset: str, where: str) -> Subset:
    if subset:
        named = [each for each in card if each.name == subset]
    else:
        named = [each for each in card if each.is_default and each.name != DEFAULT] or [
            each for each in card if each.is_default or len(card) == 1
        ]
    if len(named) == 1:  # neither missing nor ambiguous
        return named[0]
    raise _no_such_subset([each.name for each in card], subset, where)


def _from_folders(names: list[str], subset: str, where: str) -> tuple[str, Splits, list[str]]:
    subsets: dict[str, list[str]] = {}
    for name in names:
        subsets.setdefault(_folder_subset(name), []).append(name)
    if not subset and len(subsets) > 1:
        raise _no_such_subset(subsets, "", where)
    if subset and subset not in subsets:
        raise _no_such_subset(subsets, subset, where)
    chosen = subset or next(iter(subsets), DEFAULT)
    splits, unread = _splits_and_unread(subsets.get(chosen, []), _prefix(chosen, subsets.get(chosen, [])))
    return (chosen if subset else ""), splits, unread


def _splits_and_unread(names: list[str], below: str) -> tuple[Splits, list[str]]:
    splits = splits_of(names, below)
    return splits, sorted({*names} - {name for files in splits.values() for name in files})


def _folder_subset(name: str) -> str:
    """Return the top-level folder, or the one in `data/`; `default` for files outside of one and in a folder of a split."""
    folders = name.split("/")[:-1]
    if folders and folders[0].lower() == "data":
        folders = folders[1:]
    return folders[0] if folders and not is_folder_of_split(folders[0]) else DEFAULT


def _prefix(subset: str, names: list[str]) -> str:
    """Return the path of a subset's folder: a word in it, as in `dev-blog/train.jsonl`, marks no split."""
    prefixes = [f"{subset}/", f"data/{subset}/"]
    return next((each for each in prefixes if names and all(name.startswith(each) for name in names)), "")


def _train_splits(splits: Splits, split: str, where: str) -> list[str]:
    """Return the split to train on; several only where all are named as held out, which leaves no other to train on."""
    if split:
        if split not in splits:
            raise InitializerError(f"{where} has no split {split!r}; {_choices('split', splits, split)}")
        return [split]
    if TRAIN in splits:  # the split that is called so needs no choice
        return [TRAIN]
    candidates = [name for name in splits if not is_held_out(name)]
    if len(candidates) > 1:
        raise InitializerError(f"{where} has several splits to train on; {_choices('split', candidates, '')}")
    return candidates or list(splits)


def _held_out_splits(splits: Splits, train: list[str]) -> list[str]:
    """Return the splits to hold out: those of the same variant, as test_sft for train_sft, else those of none."""
    others = [name for name in splits if is_held_out(name) and name not in train]
    if not train:  # nothing to compare with
        return []
    same = [name for name in others if variant_of(name) == variant_of(train[0])]
    return same or [name for name in others if not variant_of(name)]


def _matching(names: list[str], patterns: Iterable[str]) -> list[str]:
    present, found = set(names), set()
    for pattern in patterns:
        if not _WILDCARDS & set(pattern):
            found |= {pattern} & present
        else:
            found |= {name for name in names if matches_glob(pattern, name)}
    return sorted(found)


def _no_such_subset(subsets: Iterable[str], subset: str, where: str) -> InitializerError:
    problem = f"has no subset {subset!r}" if subset else "has several subsets"
    return InitializerError(f"{where} {problem}; {_choices('subset', subsets, subset)}; subset={ALL} takes all files")


def _choices(option: str, names: Iterable[str], given: str) -> str:
    names = sorted(names)
    near = get_close_matches(given, names, n=3) if given else []
    listed = ", ".join(names[:_MAX_LISTED]) + (f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else "")
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"choose {option}= one of {listed or 'none'}{hint}"


@dataclass(frozen=True)
class SplitPart:
    """A part of the rows of a split, as the library `datasets` reads it: percentages are rounded to the closest row."""

    start: int | None
    stop: int | None
    is_percent: bool

    def bounds(self, count_rows: Callable[[], int]) -> tuple[int, int | None]:
        """Return the first row, and the one after the last; None: to the end. The rows are counted only if that is needed."""
        if not self.is_percent and min(self.start or 0, self.stop or 0) >= 0:  # positions from the beginning need no count
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
    if "[" not in split:  # the whole split
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
    grouped: Splits = {}
    for name, split in splits.items():
        grouped.setdefault(split, []).append(name)
    return {split: sorted(names) for split, names in sorted(grouped.items())}


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


def _words(name: str) -> list[str]:
    return [word for word in _BETWEEN_WORDS.split(name.lower()) if word]
