"""Subsets and splits that a publisher keeps apart are not mixed: the choice is the card's, the only one, or the user's."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers.hub_server import HubServer

from trainwright.initializers import DatasetOptions, InitializerError, Receipt, dataset, initialize_dataset, prepare_dataset
from trainwright.initializers.dataset_card import Subset, parse_card
from trainwright.initializers.subsets import Selection, matches_glob, select_files

CARD = b"""---
license: mit
configs:
- config_name: en
  data_files:
  - split: train
    path: data/en/train-*
  - split: test
    path: data/en/test-*.jsonl
- config_name: de
  data_files:
  - split: train
    path: [data/de/a.jsonl, "data/de/b*"]
---
# Words
"""
FILES = {
    "data/en/train-1.jsonl": "en 1",
    "data/en/train-2.jsonl": "en 2",
    "data/en/test-1.jsonl": "en held out",
    "data/de/a.jsonl": "de a",
    "data/de/b.jsonl": "de b",
    "data/de/c.jsonl": "in no pattern",
}


def row(text: str) -> bytes:
    return json.dumps({"text": text}).encode() + b"\n"


def write(folder: Path, files: dict[str, str], card: bytes = b"") -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(row(text))
    if card:
        (folder / "README.md").write_bytes(card)
    return f"file://{folder}"


def texts(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text().splitlines()] if path.exists() else []


def prepare(uri: str, target: Path, **options: Any) -> Receipt:
    return initialize_dataset(uri, target, DatasetOptions(**{"test_fraction": 0, **options}))


@pytest.mark.parametrize(
    ("names", "options", "train", "held_out"),
    [
        # as before: files named for splits
        (["rows.jsonl", "test.jsonl", "dev.jsonl"], {}, ["rows.jsonl"], ["dev.jsonl", "test.jsonl"]),
        (["test.jsonl", "dev.jsonl"], {}, ["dev.jsonl", "test.jsonl"], []),
        (["a.jsonl", "b.jsonl"], {}, ["a.jsonl", "b.jsonl"], []),
        (["data/train-00000-of-00001.parquet", "data/test.csv"], {}, ["data/train-00000-of-00001.parquet"], ["data/test.csv"]),
        (["train/a.jsonl", "test/a.jsonl"], {}, ["train/a.jsonl"], ["test/a.jsonl"]),
        # a split that is chosen
        (["train.jsonl", "test.jsonl", "dev.jsonl"], {"split": "train"}, ["train.jsonl"], ["dev.jsonl", "test.jsonl"]),
        (["train.jsonl", "test.jsonl", "dev.jsonl"], {"split": "validation"}, ["dev.jsonl"], ["test.jsonl"]),
        # shards with other names of splits
        (
            ["x/sft-00000-of-00002.csv", "x/sft-00001-of-00002.csv"],
            {},
            ["x/sft-00000-of-00002.csv", "x/sft-00001-of-00002.csv"],
            [],
        ),
        (
            [f"data/{name}-00000-of-00001.csv" for name in ("train_sft", "test_sft", "train_gen", "test_gen")],
            {"split": "train_sft"},
            ["data/train_sft-00000-of-00001.csv"],
            ["data/test_sft-00000-of-00001.csv"],
        ),
        # folders are subsets
        (["de/train.jsonl", "de/test.jsonl"], {}, ["de/train.jsonl"], ["de/test.jsonl"]),
        (["de/train.jsonl", "en/train.jsonl", "en/dev.csv"], {"subset": "en"}, ["en/train.jsonl"], ["en/dev.csv"]),
        (["data/de/x.jsonl", "data/en/x.jsonl"], {"subset": "de"}, ["data/de/x.jsonl"], []),
        (["dev-blog/train.jsonl", "dev-blog/test.jsonl"], {}, ["dev-blog/train.jsonl"], ["dev-blog/test.jsonl"]),
        (["x.jsonl", "de/x.jsonl"], {"subset": "default"}, ["x.jsonl"], []),
        (["x.jsonl", "de/x.jsonl"], {"subset": "*"}, ["de/x.jsonl", "x.jsonl"], []),
    ],
)
def test_the_chosen_files_are_trained_on(
    names: list[str], options: dict[str, str], train: list[str], held_out: list[str]
) -> None:
    selection = select_files(names, (), **options)
    assert (list(selection.train), list(selection.held_out)) == (train, held_out)


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (
            ["de/x.jsonl", "en/x.jsonl"],
            {},
            "hf://o/n has several subsets; choose subset= one of de, en; subset=* takes all files",
        ),
        (["x.jsonl", "en/x.jsonl"], {}, "has several subsets; choose subset= one of default, en;"),
        (["de/x.jsonl", "en/x.jsonl"], {"subset": "eng"}, "has no subset 'eng'; choose subset= one of de, en; did you mean en?"),
        (["x.jsonl"], {"subset": "en"}, "has no subset 'en'; choose subset= one of default;"),
        (
            ["train.jsonl", "test.jsonl"],
            {"split": "tran"},
            "no split 'tran'; choose split= one of test, train; did you mean train?",
        ),
        (
            ["train_a-00000-of-00001.csv", "train_b-00000-of-00001.csv"],
            {},
            "has several splits to train on; choose split= one of train_a, train_b",
        ),
        ([f"s{n:03}/x.csv" for n in range(100)], {}, "s028, s029 and 70 more; subset=*"),
    ],
)
def test_a_choice_that_is_missing_or_unknown_lists_what_there_is(names: list[str], options: dict[str, str], message: str) -> None:
    with pytest.raises(InitializerError) as caught:
        select_files(names, (), **options, where="hf://o/n")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subset": "en"}, Selection(("data/en/train-1.jsonl", "data/en/train-2.jsonl"), ("data/en/test-1.jsonl",), "en")),
        ({"subset": "de"}, Selection(("data/de/a.jsonl", "data/de/b.jsonl"), (), "de")),
        ({"subset": "en", "split": "test"}, Selection(("data/en/test-1.jsonl",), (), "en", "test", ("train",))),
        ({"subset": "*"}, Selection(tuple(sorted({*FILES} - {"data/en/test-1.jsonl"})), ("data/en/test-1.jsonl",), "*")),
    ],
)
def test_the_card_says_which_files_belong_to_a_subset(options: dict[str, str], expected: Selection) -> None:
    assert select_files(FILES, parse_card(CARD), **options) == expected


def test_the_default_of_the_card_is_taken() -> None:
    marked = CARD.replace(b"- config_name: de\n", b"- config_name: de\n  default: true\n")
    assert select_files(FILES, parse_card(marked)).subset == "de"
    named = CARD.replace(b"config_name: de", b"config_name: default")
    assert select_files(FILES, parse_card(named)).subset == "default"
    with pytest.raises(InitializerError, match="has several subsets; choose subset= one of de, en"):
        select_files(FILES, parse_card(CARD))


def test_a_card_whose_files_are_not_there_says_so() -> None:
    with pytest.raises(
        InitializerError, match=r"README.md names data/de/a.jsonl, data/de/b\* for the subset 'de', but there is no"
    ):
        select_files(["x.jsonl"], parse_card(CARD), subset="de")


@pytest.mark.parametrize(
    ("yaml", "expected"),
    [
        ("configs: [{config_name: a, data_files: x.csv}]", Subset("a", patterns=(("train", ("x.csv",)),))),
        ("configs: [{config_name: a, data_files: [x.csv, ./y.csv]}]", Subset("a", patterns=(("train", ("x.csv", "y.csv")),))),
        ("configs: [{data_files: {test: x.csv}}]", Subset("default", True, patterns=(("test", ("x.csv",)),))),
        ("configs: [{config_name: a, data_dir: ./d/, data_files: x}]", Subset("a", False, "d", (("train", ("d/x",)),))),
        ("configs: [{config_name: a, default: true, data_dir: d}]", Subset("a", True, "d")),
    ],
)
def test_every_form_of_configs_is_read(yaml: str, expected: Subset) -> None:
    assert parse_card(f"\ufeff---\r\n{yaml}\r\n---\r\nwords".encode()) == (expected,)


@pytest.mark.parametrize(
    "content", [b"", b"# Words", b"---\nlicense: mit\n---\n", b"---\nconfigs: []\n", b"---\na: {\n---\n", b"---\nconfigs:\n---\n"]
)
def test_a_card_without_configs_names_no_subset(content: bytes) -> None:
    assert parse_card(content) == ()


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("configs: {", "README.md:3:1: not YAML: "),
        ("configs: 1", "configs is not a list"),
        ("configs: [1]", "entry 1 of configs is not an object"),
        ("configs: [{config_name: 1}]", "entry 1 of configs: config_name and data_dir must be texts"),
        ("configs: [{data_files: [1]}]", "data_files of the subset 'default' must be paths"),
        ("configs: [{data_files: 1}]", "data_files of the subset 'default' must be paths"),
        ("configs: [{data_files: [{split: train}]}]", "a path must be a text or a list of texts"),
        ("configs: [{config_name: a}, {config_name: a}]", "two subsets have the same config_name"),
        (f"configs: [{{data_files: [{'x,' * 2001}]}}]", "more than 2000 patterns"),
    ],
)
def test_a_card_that_cannot_be_understood_is_one_error(yaml: str, message: str) -> None:
    with pytest.raises(InitializerError) as caught:
        parse_card(f"---\n{yaml}\n---\n".encode())
    assert str(caught.value).startswith("the dataset's README.md")
    assert message in str(caught.value)


@pytest.mark.medium
@given(st.binary(max_size=200))
def test_any_card_is_read_or_refused(content: bytes) -> None:
    with contextlib.suppress(InitializerError):
        parse_card(b"---\nconfigs:\n" + content + b"\n---\n")


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("*.csv", "a.csv", True),
        ("*.csv", "d/a.csv", False),
        ("**/*.csv", "a.csv", True),
        ("**/*.csv", "d/e/a.csv", True),
        ("d/**", "d/e/a.csv", True),
        ("d/**", "e/a.csv", False),
        ("d/*/a-[0-9].csv", "d/e/a-1.csv", True),
        ("d/*/a-[0-9].csv", "d/e/f/a-1.csv", False),
        ("../*", "a.csv", False),
        ("/".join(["**", "a*a*a*a*a*b"] * 20), "/".join(["a" * 50] * 50), False),
    ],
)
def test_patterns_match_as_on_the_hub(pattern: str, name: str, expected: bool) -> None:
    assert matches_glob(pattern, name) == expected


@pytest.mark.medium
def test_a_local_folder_is_read_by_its_card(tmp_path: Path) -> None:
    uri, target = write(tmp_path / "source", FILES, CARD), tmp_path / "out"
    with pytest.raises(InitializerError, match=f"{uri} has several subsets; choose subset= one of de, en"):
        prepare(uri, target)
    assert not target.exists()
    receipt = prepare(uri, target, subset="en")
    assert texts(target / "train.jsonl") == ["en 1", "en 2"]
    assert texts(target / "test.jsonl") == ["en held out"]
    assert receipt.details["subset"] == receipt.options["subset"] == "en"
    assert prepare(uri, target, subset="en") == receipt
    prepare(uri, target, subset="de")
    assert texts(target / "train.jsonl") == ["de a", "de b"]


def test_a_changed_card_prepares_the_dataset_again(tmp_path: Path) -> None:
    uri, target = write(tmp_path / "source", FILES, CARD), tmp_path / "out"
    prepare(uri, target, subset="de")
    write(tmp_path / "source", {}, CARD.replace(b"data/de/b*", b"data/de/c*"))
    prepare(uri, target, subset="de")
    assert texts(target / "train.jsonl") == ["de a", "in no pattern"]


def test_receipt_records_options_and_rules(tmp_path: Path) -> None:
    receipt = prepare(write(tmp_path / "source", {"rows.jsonl": "a"}), tmp_path / "out")
    assert receipt.options["rules"] >= 1
    assert receipt.options.keys() == {"rules", "as_messages", *DatasetOptions.model_fields}
    assert receipt.details == {"layout": "text", "train_rows": 1, "test_rows": 0, "empty_rows": 0}


@pytest.mark.parametrize("options", [None, DatasetOptions(test_fraction=0)])
def test_dataset_of_other_rules_is_prepared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: DatasetOptions | None
) -> None:
    uri = write(tmp_path / "source", {"rows.jsonl": "a"})
    prepare(uri, tmp_path / "out")
    prepare_dataset(uri, tmp_path / "workspace", DatasetOptions(test_fraction=0))
    monkeypatch.setattr(dataset, "_RULES", {"rules": "later"})
    assert initialize_dataset(uri, tmp_path / "out", options).options["rules"] == "later"
    assert prepare_dataset(uri, tmp_path / "workspace", options).receipt.options["rules"] == "later"


def test_the_row_and_its_file_are_named_below_a_subset(tmp_path: Path) -> None:
    uri = write(tmp_path / "source", {"de/a.jsonl": "x"})
    (tmp_path / "source/de/b.jsonl").write_bytes(row("y") + b'{"text": 5}\n')
    with pytest.raises(InitializerError, match=r"\(de/b.jsonl, row 2\): column 'text' is int"):
        prepare(uri, tmp_path / "out")


def test_compressed_json_lines_are_read(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/train.jsonl.gz").write_bytes(gzip.compress(row("a") + row("b")))
    prepare(f"file://{tmp_path}/source", tmp_path / "out")
    assert texts(tmp_path / "out/train.jsonl") == ["a", "b"]


def test_columns_are_mapped_and_recorded(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"frage": "f", "antwort": "a"}\n')
    columns = {"prompt": "frage", "completion": "antwort"}
    receipt = prepare(f"file://{tmp_path}/rows.jsonl", tmp_path / "out", columns=columns)
    assert (tmp_path / "out/train.jsonl").read_text() == '{"prompt": "f", "completion": "a"}\n'
    assert receipt.options["columns"] == columns
    assert DatasetOptions.model_validate({"columns": json.dumps(columns)}).columns == columns


@pytest.mark.medium
def test_only_the_chosen_subset_is_fetched_from_the_hub(hub: HubServer, tmp_path: Path) -> None:
    hub.repository("datasets/org/name").push({**{name: row(text) for name, text in FILES.items()}, "README.md": CARD})
    with pytest.raises(InitializerError, match="hf://org/name has several subsets; choose subset= one of de, en"):
        prepare("hf://org/name", tmp_path / "out")
    assert hub.downloads() == ["README.md"]
    prepare("hf://org/name", tmp_path / "out", subset="de")
    assert texts(tmp_path / "out/train.jsonl") == ["de a", "de b"]
    assert sorted(set(hub.downloads())) == ["README.md", "a.jsonl", "b.jsonl"]


@pytest.mark.medium
def test_without_a_card_the_folders_of_a_repository_are_its_subsets(hub: HubServer, tmp_path: Path) -> None:
    hub.repository("datasets/org/name").push({"de/x.jsonl": row("de"), "en/y.jsonl": row("en")})
    with pytest.raises(InitializerError, match="has several subsets; choose subset= one of de, en"):
        prepare("hf://org/name", tmp_path / "out")
    assert hub.downloads() == []
    prepare("hf://org/name", tmp_path / "out", subset="en")
    assert texts(tmp_path / "out/train.jsonl") == ["en"]
    prepare("hf://org/name/de", tmp_path / "out")
    assert texts(tmp_path / "out/train.jsonl") == ["de"]


TABLE = "prompt,completion\na,b\n"
TALK = [{"prompt": "a", "completion": "b"}]
OPTIONS: list[tuple[str, str, str]] = [
    ('sep: "\\t"', "data.csv", "prompt\tcompletion\ns, 0\ts\n"),
    ('delimiter: "|"\n  sep: "x"', "data.csv", "prompt|completion\n; 1|x\n"),
    ('sep: ";"', "data.tsv", 'prompt;completion\n"a;\tb";c\n'),
    ("field: rows", "data.json", json.dumps({"version": 1, "rows": TALK})),
    ("field: rows", "data.jsonl", json.dumps({"rows": TALK})),
    ("field: rows", "data.json", json.dumps({"rows": {"prompt": ["a", "c"], "completion": ["b", "d"]}})),
    ("field: rows", "data.csv", "prompt,completion\na,b\n"),
]


def write_with_options(folder: Path, options: str, name: str, content: str) -> str:
    folder.mkdir()
    (folder / name).write_text(content)
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: default\n  data_files: {name}\n  {options}\n---\n")
    return f"file://{folder}"


@pytest.mark.medium
@pytest.mark.parametrize(("options", "name", "content"), OPTIONS)
def test_options_of_the_card_read_the_rows_of_datasets(tmp_path: Path, options: str, name: str, content: str) -> None:
    datasets = pytest.importorskip("datasets")
    uri = write_with_options(tmp_path / "source", options, name, content)
    expected = datasets.load_dataset(str(tmp_path / "source"), cache_dir=str(tmp_path / "cache"), split="train")
    prepare(uri, tmp_path / "out")
    assert [json.loads(line) for line in (tmp_path / "out" / "train.jsonl").read_text().splitlines()] == list(expected)


@pytest.mark.parametrize(
    ("options", "name", "content", "message"),
    [
        ('sep: "||"', "data.csv", TABLE, "sep of the subset 'default' must be one character, not '||'"),
        ("field: [a]", "data.json", "{}", "field of the subset 'default' must be a text"),
        ("field: other", "data.json", '{"rows": []}', "there is no field 'other', which the dataset's card names"),
        ("field: rows", "data.json", '{"rows": 1}', "the field 'rows' is not a list of rows"),
        ("field: rows", "data.json", '{"rows": {"prompt": ["a"], "completion": []}}', "have different lengths"),
        (
            "names: [prompt, completion]",
            "data.csv",
            TABLE,
            "README.md names names for the subset 'default', which changes the rows",
        ),
        ("skiprows: 1", "data.csv", TABLE, "names skiprows for the subset 'default', which changes the rows of data.csv"),
    ],
)
def test_options_that_cannot_be_followed_are_refused(tmp_path: Path, options: str, name: str, content: str, message: str) -> None:
    uri = write_with_options(tmp_path / "source", options, name, content)
    with pytest.raises(InitializerError, match=re.escape(message)):
        prepare(uri, tmp_path / "out")


def test_all_files_are_read_without_the_options_of_the_card(tmp_path: Path) -> None:
    uri = write_with_options(tmp_path / "source", "skiprows: 1", "data.csv", TABLE)
    assert prepare(uri, tmp_path / "out", subset="*").details["train_rows"] == 1
