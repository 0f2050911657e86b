"""Which split of a dataset a file belongs to, by its name: `data/test-00000-of-00001.parquet`, `dev.jsonl`, `train_sft-...`."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

TRAIN = "train"
_HELD_OUT = {"test": "test", "eval": "test", "validation": "validation", "dev": "validation", "valid": "validation"}
"""Words in names of splits that are not trained on, and the names of their splits."""
_TRAIN_WORDS = ("train", "training")
_NEUTRAL_WORDS = ("data", "dataset", "files", "rows", "set", "split", "splits")
_SHARD = re.compile(r"([^-/]+)-[0-9]{5}-of-[0-9]{5}(?:[-.].*)?", re.DOTALL)
"""The names that the `datasets` library writes."""


def split_of(path: str) -> str:
    """Return the split that a path's names mark, or `train`. Only shards, as `NAME-00000-of-00001`, have other splits than
    `train`, `test` and `validation`.
    """
    pure = PurePosixPath(path)
    if shard := _SHARD.fullmatch(pure.name):
        name = shard[1]
        words = _words(name)
        if variant_of(name) or not {*words} <= {*_HELD_OUT, *_TRAIN_WORDS}:
            return name
    found = [word for word in _words(str(pure.with_suffix(""))) if word in _HELD_OUT]
    return _HELD_OUT[found[0]] if found else TRAIN


def is_held_out(split: str) -> bool:
    """Whether the rows of a split are for tests, by its name."""
    return any(word in _HELD_OUT for word in _words(split))


def variant_of(split: str) -> frozenset[str]:
    """Return what a name says beside the kind of split: `sft` for `train_sft` and `test_sft`."""
    return frozenset(_words(split)) - {*_HELD_OUT, *_TRAIN_WORDS}


def is_folder_of_split(name: str) -> bool:
    """Whether a folder is named for a split, as `train` or `test-data`, or for data in general, and thus is no subset."""
    return {*_words(name)} <= {*_HELD_OUT, *_TRAIN_WORDS, *_NEUTRAL_WORDS}


def _words(name: str) -> list[str]:
    return re.split(r"[-_./]", name.lower())
