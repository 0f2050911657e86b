"""Files are held out, trained on or not read as the library `datasets` would read the folder."""

from __future__ import annotations

import functools
import itertools
import re

import pytest
from fsspec.utils import glob_translate
from hypothesis import given
from hypothesis import strategies as st
from support.shared_folder import shared_folder

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.subsets import is_held_out, parse_split, select_files, splits_of

KEYWORDS = (
    "train",
    "training",
    "validation",
    "valid",
    "dev",
    "val",
    "test",
    "testing",
    "eval",
    "evaluation",
    "latest",
    "contest",
)
NAMES = ("{}", "{}1", "{}-1", "{}_a", "{}.a", "a-{}", "a_{}_b", "a.{}", "a1{}2", "a{}", "{}a", "my {}")
PLACES = ("{}.jsonl", "{}/rows.jsonl", "a/{}/rows.jsonl", "data/{}-00000-of-00001.jsonl", "{}/b/rows.jsonl")
BESIDE = ((), ("rows.jsonl",), ("train.jsonl",), ("train/rows.jsonl",), ("train.jsonl", "all.jsonl", "test.jsonl"))


@functools.cache
def expression_of(pattern: str) -> re.Pattern[str]:
    return re.compile(glob_translate(pattern))


def read_by_datasets(names: list[str]) -> dict[str, set[str]]:
    """The files by split, by the library's own rule; its patterns are those of fsspec."""
    data_files = pytest.importorskip("datasets.data_files")

    def matching(pattern: str) -> list[str]:
        return [name for name in names if expression_of(pattern).match(name)]

    patterns = data_files._get_data_files_patterns(matching)
    return {str(split): {name for each in found for name in matching(each)} for split, found in patterns.items()}


@pytest.mark.medium
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("keyword", KEYWORDS)
def test_files_are_in_the_splits_of_the_library(place: str, keyword: str) -> None:
    for name, beside in itertools.product(NAMES, BESIDE):
        names = sorted({place.format(name.format(keyword)), *beside})
        if "{}-0" in place and not re.fullmatch(r"[\w.]+", name.format(keyword)):
            continue  # the library refuses such a name of a split
        expected, ours = read_by_datasets(names), splits_of(names)
        trained = {name for split, files in ours.items() if not is_held_out(split) for name in files}
        held_out = {name for split, files in ours.items() if is_held_out(split) for name in files}
        for_tests = {name for split, files in expected.items() if is_held_out(split) for name in files}
        case = (names, ours, expected)
        assert for_tests <= held_out, case
        if for_training := {name for split, files in expected.items() if not is_held_out(split) for name in files} - for_tests:
            assert trained == for_training, case
        else:  # the library has nothing to train on: what its rules do not hold out
            assert not trained & {name for name in names if {"test", "validation"} & read_by_datasets([name]).keys()}, case


@pytest.mark.parametrize(
    ("case", "trained", "held_out"),
    [
        ("a", ["train.jsonl"], ["val.jsonl"]),
        ("c", ["training.jsonl"], ["evaluation.jsonl", "testing.jsonl"]),
        ("d", ["train/rows.jsonl"], ["test/rows.jsonl", "val/rows.jsonl"]),
        ("g", ["train.jsonl"], ["test.jsonl"]),
    ],
)
def test_the_files_that_users_had(case: str, trained: list[str], held_out: list[str]) -> None:
    folder = shared_folder("cases/field/val-split") / case
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*.jsonl")]
    selection = select_files(names)
    assert (list(selection.train), list(selection.held_out)) == (trained, held_out)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["Train.jsonl", "Test.jsonl"], {"train": ["Train.jsonl"], "test": ["Test.jsonl"]}),  # the library would train on both
        (["train_test.jsonl", "train.jsonl"], {"train": ["train.jsonl"], "test": ["train_test.jsonl"]}),
        (["rows.jsonl", "test.jsonl"], {"train": ["rows.jsonl"], "test": ["test.jsonl"]}),
        (["data/train_sft-00000-of-00001.csv"], {"train_sft": ["data/train_sft-00000-of-00001.csv"]}),
        (["latest.jsonl"], {"train": ["latest.jsonl"]}),
        (["rows.test.jsonl.gz"], {"test": ["rows.test.jsonl.gz"]}),
    ],
)
def test_where_it_differs_fewer_rows_are_trained_on(names: list[str], expected: dict[str, list[str]]) -> None:
    assert splits_of(names) == expected


def test_select_files_lists_unread_files() -> None:
    assert select_files(["train.jsonl", "all.jsonl", "test.jsonl"]).unread == ("all.jsonl",)
    assert select_files(["train.jsonl", "all.jsonl"], subset="*").train == ("all.jsonl", "train.jsonl")


BOUNDARY = st.one_of(st.just(""), st.integers(-130, 130).map(str), st.integers(-100, 100).map(lambda percent: f"{percent}%"))


@given(BOUNDARY, BOUNDARY, st.integers(0, 1000))
def test_part_of_a_split_has_the_rows_of_the_library(start: str, stop: str, total: int) -> None:
    reader = pytest.importorskip("datasets.arrow_reader")
    spec = f"train[{start}:{stop}]"
    rows = list(range(total))
    try:
        (expected,) = reader.ReadInstruction.from_spec(spec).to_absolute({"train": total})
    except ValueError:  # a percentage above 100, as in [120:3%]
        with pytest.raises(InitializerError, match="percentages are between -100 and 100"):
            parse_split(spec)
        return
    name, part = parse_split(spec)
    assert name == "train"
    assert part is not None
    assert list(itertools.islice(rows, *part.bounds(lambda: total))) == rows[expected.from_ : expected.to]


def test_rows_are_counted_only_for_percentages_and_from_the_end() -> None:
    counted = {}
    for spec in ("train[5:10]", "train[:1_000]", "train[5:]", "train[:10%]", "train[-5:]"):
        counted[spec] = False

        def count(spec: str = spec) -> int:
            counted[spec] = True
            return 100

        _, part = parse_split(spec)
        assert part is not None
        part.bounds(count)
    assert [spec for spec, is_counted in counted.items() if is_counted] == ["train[:10%]", "train[-5:]"]


@pytest.mark.parametrize("split", ["", "train", "train_sft", "clean.100"])
def test_split_without_a_part_is_its_name(split: str) -> None:
    assert parse_split(split) == (split, None)


@pytest.mark.parametrize("split", ["train+test", "train[:10]+train[20:]"])
def test_combined_splits_are_refused(split: str) -> None:
    with pytest.raises(InitializerError, match="combines splits, which is not supported: name one"):
        parse_split(split)


@pytest.mark.parametrize(
    "split", ["train[", "train[10]", "train[a:b]", "train[:10%](pct1_dropremainder)", "[:3]", "train[:1.5%]"]
)
def test_part_that_cannot_be_read_is_refused(split: str) -> None:
    with pytest.raises(InitializerError, match="expected a name and a part of it, as in train"):
        parse_split(split)
