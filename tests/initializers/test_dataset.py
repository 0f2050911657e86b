"""A prepared dataset: the right columns, the same split everywhere, once, and whole or not at all."""

import errno
import json
import os
import shutil
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from trainwright.initializers import (
    DatasetOptions,
    InitializerError,
    Receipt,
    dataset_files,
    initialize_dataset,
    initialize_model,
)
from trainwright.initializers import (
    prepare as prepare_module,
)
from trainwright.initializers.layouts import LAYOUTS
from trainwright.initializers.rows import read_rows
from trainwright.initializers.same_rows import rows_in_common
from trainwright.storage import transfer
from trainwright.storage.errors import NoSpace, StorageError
from trainwright.storage.uri import StorageUri
from trainwright.workspace import read_receipt

Rows = list[dict[str, Any]]
USER = {"role": "user", "content": "question"}
ASSISTANT = {"role": "assistant", "content": "answer"}
GOLDEN_HELD_OUT = [2, 8, 15, 17, 26, 29, 30, 32, 40, 84, 88, 92, 98]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "workspace" / "dataset"


def write(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prepare(source: Path, target: Path, **options: Any) -> Receipt:
    return initialize_dataset(str(StorageUri.from_path(source)), target, DatasetOptions(**options) if options else None)


def train(target: Path) -> Rows:
    return list(read_rows(target / "train.jsonl"))


def held_out(target: Path) -> Rows:
    return list(read_rows(target / "test.jsonl")) if (target / "test.jsonl").exists() else []


@pytest.mark.parametrize(
    ("row", "prepared", "layout"),
    [
        ({"prompt": "p", "completion": "c", "id": 1}, {"prompt": "p", "completion": "c"}, "prompt-completion"),
        (
            {"instruction": "i", "input": "x", "output": "o"},
            {"prompt": "### Instruction:\ni\n\n### Input:\nx\n\n### Response:\n", "completion": "o"},
            "alpaca",
        ),
        (
            {"instruction": "i", "input": None, "output": "o"},
            {"prompt": "### Instruction:\ni\n\n### Response:\n", "completion": "o"},
            "alpaca",
        ),
        ({"messages": [{"role": "user", "content": "c"}]}, {"messages": [{"role": "user", "content": "c"}]}, "messages"),
        (
            {"prompt": [USER], "completion": [ASSISTANT], "id": 1},
            {"prompt": [USER], "completion": [ASSISTANT]},
            "prompt-completion",
        ),
        ({"text": "t", "label": 0}, {"text": "t"}, "text"),
    ],
)
def test_columns_become_those_that_training_reads(source: Path, target: Path, row: Any, prepared: Any, layout: str) -> None:
    write(source / "train.jsonl", [row])
    receipt = prepare(source, target, test_fraction=0)
    assert train(target) == [prepared]
    dropped = receipt.details.get("dropped_columns", [])
    assert {*dropped} == row.keys() - LAYOUTS[layout].used(frozenset(row))
    counts: dict[str, Any] = {"layout": layout, "train_rows": 1, "test_rows": 0, "empty_rows": 0}
    counts |= {"questions": "text"} if layout == "alpaca" else {}
    assert {**receipt.details, "dropped_columns": dropped} == {**counts, "dropped_columns": dropped}


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        (
            {"frage": "q", "answer": "a"},
            {},
            "row 1) has the columns answer, frage; expected completion, prompt or messages or instruction, output or ",
        ),
        ({"text": "t"}, {"layout": "alpaca"}, "has the columns text; expected instruction, output"),
        ({"text": "t"}, {"layout": "sharegpt"}, "unknown layout 'sharegpt'; known: prompt-completion, messages, alpaca, "),
        ({}, {}, "has the columns none; expected"),
        ({"text": 5}, {}, "column 'text' is int, expected text; the row begins \"{'text': 5}\""),
        ({"prompt": None, "completion": "c"}, {}, "column 'prompt' is empty, expected text"),
        (
            {"prompt": "p", "completion": ["c"]},
            {},
            "column 'completion' is a list and column 'prompt' is text; expected text in both",
        ),
        ({"prompt": [USER], "completion": "c"}, {}, "column 'prompt' is a list and column 'completion' is text; expected text"),
        ({"prompt": [USER], "completion": None}, {}, "column 'completion' is empty, expected text"),
        ({"prompt": [USER], "completion": []}, {}, "column 'completion' has no message; expected at least one with role"),
        ({"messages": []}, {}, "column 'messages' has no message; expected at least one with role and content"),
        (
            {"messages": [USER, {"role": "assistant", "content": None}]},
            {},
            "'messages': content of message 2 is empty, expected text",
        ),
        ({"messages": [{"role": "user", "content": [{}]}]}, {}, "column 'messages': content of message 1 is list, expected text"),
        ({"messages": [{"role": 1, "content": "c"}]}, {}, "column 'messages': role of message 1 is int, expected text"),
        ({"messages": "hello"}, {}, "column 'messages' is not a list of messages with role and content"),
        ({"messages": [{"from": "human", "text": "hello"}]}, {}, "column 'messages' is not a list of messages"),
        ({"text": "\ud83d"}, {}, "the row is not valid Unicode"),
    ],
)
def test_a_row_that_does_not_fit_is_named_with_its_columns(
    source: Path, target: Path, row: Any, options: dict[str, str], message: str
) -> None:
    write(source / "rows.jsonl", [row])
    with pytest.raises(InitializerError) as caught:
        prepare(source, target, **options)
    assert f"file://{source}" in str(caught.value) or "unknown layout" in str(caught.value)
    assert message in str(caught.value)
    assert not target.exists()
    assert not list(target.parent.iterdir())


def test_all_rows_have_the_layout_of_the_first(source: Path, target: Path) -> None:
    write(source / "rows.jsonl", [{"text": "t"}, {"prompt": "p", "completion": "c", "text": "u"}])
    assert prepare(source, target, test_fraction=0).details["layout"] == "text"
    assert train(target) == [{"text": "t"}, {"text": "u"}]
    write(source / "rows.jsonl", [{"text": "t"}, {"prompt": "p", "completion": "c"}])
    with pytest.raises(InitializerError, match=r"\(rows.jsonl, row 2\) has the columns completion, prompt; expected text"):
        prepare(source, target, test_fraction=0)


@pytest.mark.parametrize(
    ("first", "later", "message"),
    [
        (
            {"prompt": "p", "completion": "c"},
            {"prompt": [USER], "completion": [ASSISTANT]},
            "prompt and completion of this row contain lists of messages, those of earlier rows text",
        ),
        (
            {"prompt": [USER], "completion": [ASSISTANT]},
            {"prompt": "p", "completion": "c"},
            "prompt and completion of this row contain text, those of earlier rows lists of messages",
        ),
        ({"messages": [USER, ASSISTANT]}, {"text": "t"}, "has the columns text; expected messages"),
        ({"text": "t"}, {"text": None}, "column 'text' is empty, expected text"),
    ],
)
def test_a_later_row_of_another_layout_is_named_by_its_number(
    source: Path, target: Path, first: Any, later: Any, message: str
) -> None:
    write(source / "a.jsonl", [first])
    write(source / "b.jsonl", [first, first, later, first])
    with pytest.raises(InitializerError) as caught:
        prepare(source, target, test_fraction=0)
    assert "(b.jsonl, row 3)" in str(caught.value)
    assert message in str(caught.value)
    assert not target.exists()


def test_a_conversation_with_nothing_to_learn_from_is_left_out(source: Path, target: Path) -> None:
    write(source / "rows.jsonl", [{"messages": [USER, ASSISTANT]}, {"messages": [{"role": "assistant", "content": " "}]}])
    assert prepare(source, target, test_fraction=0).details["empty_rows"] == 1


def test_rows_with_nothing_to_learn_from_are_left_out_and_counted(source: Path, target: Path) -> None:
    write(source / "rows.jsonl", [{"text": "t"}, {"text": ""}, {"text": " \n"}])
    assert prepare(source, target, test_fraction=0).details["empty_rows"] == 2
    assert train(target) == [{"text": "t"}]


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"text": ""}\n'])
def test_a_dataset_without_rows_is_refused(source: Path, target: Path, content: bytes) -> None:
    (source / "rows.jsonl").write_bytes(content)
    with pytest.raises(InitializerError, match=f"file://{source} has no rows to train on$"):
        prepare(source, target)
    assert not target.exists()


def test_rows_that_were_all_held_out_are_said_to_be(source: Path, target: Path) -> None:
    write(source / "rows.jsonl", [{"text": "t"}])
    with pytest.raises(InitializerError, match="all 1 rows are test rows; lower test_fraction"):
        prepare(source, target, test_fraction=0.9999999)


@pytest.mark.parametrize(
    "name", ["test.jsonl", "data/validation-00000-of-00001.jsonl", "eval/rows.jsonl", "rows_dev.jsonl", "RowsX.test.jsonl"]
)
def test_a_split_of_the_source_is_kept(source: Path, target: Path, name: str) -> None:
    write(source / "train.jsonl", [{"text": f"train {n}"} for n in range(50)])
    write(source / name, [{"text": "held out"}])
    assert prepare(source, target).details["train_rows"] == 50
    assert held_out(target) == [{"text": "held out"}]


@pytest.mark.parametrize("name", ["latest.jsonl", "contest.jsonl", "device.jsonl"])
def test_a_name_that_only_sounds_like_a_split_is_none(source: Path, target: Path, name: str) -> None:
    write(source / name, [{"text": "a"}])
    write(source / "more.jsonl", [{"text": "b"}])
    assert prepare(source, target, test_fraction=0).details["train_rows"] == 2


def test_a_source_with_nothing_but_a_held_out_file_is_trained_on(source: Path, target: Path) -> None:
    write(source / "test.jsonl", [{"text": "a"}])
    assert prepare(source, target, test_fraction=0).details["train_rows"] == 1


def test_the_fraction_is_held_out_and_stays_held_out_when_rows_are_added(source: Path, target: Path, rows: Rows) -> None:
    more = [{"prompt": f"new {n}", "completion": "c"} for n in range(400)]
    write(source / "rows.jsonl", rows)
    prepare(source, target, test_fraction=0.2)
    before = held_out(target)
    assert 10 <= len(before) <= 30
    assert sorted(train(target) + before, key=str) == sorted(rows, key=str)
    write(source / "rows.jsonl", more[:200] + rows + more[200:])
    prepare(source, target, test_fraction=0.2)
    after = held_out(target)
    assert [row for row in after if row in rows] == before
    assert 60 <= len(after) <= 140


def test_a_row_falls_on_the_same_side_whatever_it_is_stored_as(source: Path, target: Path, rows: Rows) -> None:
    digests = set()
    for name, content in (("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows)), ("rows.json", json.dumps(rows))):
        shutil.rmtree(source)
        source.mkdir()
        (source / name).write_text(content)
        digests.add(prepare(source, target).digest)
    assert len(digests) == 1


def test_the_split_is_the_one_it_always_was(source: Path, target: Path, rows: Rows) -> None:
    """Another split would let old checkpoints be evaluated on rows that they were trained on."""
    write(source / "rows.jsonl", rows)
    prepare(source, target)
    assert [int(row["prompt"].split()[1]) for row in held_out(target)] == GOLDEN_HELD_OUT


@pytest.mark.parametrize(("most", "expected"), [(0, 8), (1, 2), (3, 4), (99, 8)])
def test_max_rows_takes_the_first_of_all_files(source: Path, target: Path, most: int, expected: int) -> None:
    write(source / "a.jsonl", [{"text": f"a{n}"} for n in range(3)])
    write(source / "b.jsonl", [{"text": f"b{n}"} for n in range(4)])
    write(source / "test.jsonl", [{"text": "held out"}])
    receipt = prepare(source, target, max_rows=most)
    assert receipt.details["train_rows"] + receipt.details["test_rows"] == expected
    assert [row["text"] for row in train(target)] == ["a0", "a1", "a2", "b0", "b1", "b2", "b3"][: most or None]


def test_a_folder_without_held_out_rows_is_one_that_the_datasets_library_reads(source: Path, target: Path) -> None:
    write(source / "rows.jsonl", [{"text": "t"}])
    receipt = prepare(source, target, test_fraction=0)
    assert not (target / "test.jsonl").exists()
    assert [file.path for file in receipt.files] == ["README.md", "train.jsonl"]


def test_metadata_files_of_the_datasets_library_are_ignored(source: Path, target: Path) -> None:
    write(source / "train.jsonl", [{"text": "t"}])
    for name in ("dataset_info.json", "dataset_infos.json", "state.json", ".hidden.jsonl", ".cache/x.jsonl"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(b'{"features": {}}')
    assert prepare(source, target, test_fraction=0).details["train_rows"] == 1


def test_a_single_file_is_a_source(source: Path, target: Path) -> None:
    path = write(source / "rows ü.jsonl", [{"text": "t"}])
    write(source / "other.jsonl", [{"text": "u"}])
    prepare(path, target, test_fraction=0)
    assert train(target) == [{"text": "t"}]


def test_a_second_run_leaves_the_files_alone(source: Path, target: Path, rows: Rows) -> None:
    write(source / "rows.jsonl", rows)
    first = prepare(source, target, test_fraction=0.3)
    before = {path: path.stat().st_mtime_ns for path in (target, *target.iterdir())}
    assert prepare(source, target, test_fraction=0.3) == first
    assert prepare(source, target) == first  # no options: whatever there is
    shutil.rmtree(source)
    assert prepare(source, target) == first  # the source is on another machine
    assert {path: path.stat().st_mtime_ns for path in (target, *target.iterdir())} == before


@pytest.mark.parametrize("file", ["train.jsonl", "test.jsonl"])
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_a_receipt_that_no_longer_fits_the_files_is_not_believed(
    source: Path, target: Path, rows: Rows, file: str, damage: Callable[[Path], object]
) -> None:
    write(source / "rows.jsonl", rows)
    receipt = prepare(source, target)
    damage(target / file)
    assert prepare(source, target).digest == receipt.digest
    assert receipt.matches(target)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"kind": "dataset"}'])
def test_a_receipt_that_makes_no_sense_makes_a_folder_of_somebody_else(
    source: Path, target: Path, rows: Rows, content: bytes
) -> None:
    write(source / "rows.jsonl", rows)
    target.mkdir(parents=True)
    (target / ".trainwright-receipt.json").write_bytes(content)
    with pytest.raises(InitializerError, match="exists and was not prepared by Trainwright"):
        prepare(source, target)


def test_a_changed_source_or_other_options_are_prepared_anew(source: Path, target: Path, rows: Rows) -> None:
    write(source / "rows.jsonl", rows)
    digests = [prepare(source, target).digest, prepare(source, target, max_rows=50).digest]
    write(source / "rows.jsonl", rows[:80])
    digests += [prepare(source, target).digest, prepare(source, target, layout="prompt-completion", test_fraction=0).digest]
    assert len(set(digests)) == 4
    assert [path.name for path in target.parent.iterdir()] == ["dataset"]


@pytest.mark.parametrize("there", ["file", "folder"])
def test_foreign_target_is_refused_before_reading(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    write(source / "rows.jsonl", [{"text": "t"}])
    if there == "file":
        target.parent.mkdir()
        target.write_bytes(b"precious")
    else:
        write(target / "precious.jsonl", [])
    monkeypatch.setattr(dataset_files, "fetch", lambda *_: pytest.fail("read already"))
    with pytest.raises(InitializerError, match=f"{target} exists and was not prepared by Trainwright"):
        prepare(source, target)
    assert target.is_file() or (target / "precious.jsonl").exists()


def test_a_model_is_not_replaced_by_a_dataset(
    source: Path, target: Path, tmp_path: Path, rows: Rows, model_files: dict[str, bytes]
) -> None:
    (tmp_path / "model").mkdir()
    for name, content in model_files.items():
        (tmp_path / "model" / name).write_bytes(content)
    initialize_model(str(StorageUri.from_path(tmp_path / "model")), target)
    write(source / "rows.jsonl", rows)
    with pytest.raises(InitializerError, match="contains a prepared model; choose another folder for the dataset"):
        prepare(source, target)
    assert (target / "model.safetensors").exists()


def test_an_empty_folder_at_the_target_is_used(source: Path, target: Path, rows: Rows) -> None:
    write(source / "rows.jsonl", rows)
    target.mkdir(parents=True)
    assert prepare(source, target).matches(target)


def test_a_source_that_is_not_there_or_holds_nothing_is_said(source: Path, target: Path) -> None:
    with pytest.raises(InitializerError, match=r"missing does not exist"):
        prepare(source / "missing", target)
    (source / "readme.txt").write_bytes(b"")
    with pytest.raises(InitializerError, match=r"has no file that matches \*\.jsonl, \*\.json, \*\.csv, \*\.tsv, \*\.parquet"):
        prepare(source, target)
    with pytest.raises(InitializerError, match=r"readme\.txt: cannot read \.txt"):
        prepare(source / "readme.txt", target)
    assert not list(target.parent.iterdir())


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("number", range(1, 6))
def test_a_full_disk_at_any_time_leaves_what_was_there_and_the_next_run_finishes(
    source: Path, target: Path, rows: Rows, monkeypatch: pytest.MonkeyPatch, before: bool, number: int
) -> None:
    write(source / "rows.jsonl", rows)
    first = prepare(source, target) if before else None
    write(source / "more.jsonl", [{"prompt": "p", "completion": "c"}])
    calls = 0

    def full(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal calls
            if isinstance(args[0], int) and stat.S_ISDIR(os.fstat(args[0]).st_mode):
                return real(*args)  # a folder is synced where that can be done
            calls += 1
            if calls == number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args, **options)

        return call

    failed = False
    with monkeypatch.context() as patched:
        for place, name in ((os, "fsync"), (os, "replace"), (prepare_module, "exchange")):
            patched.setattr(place, name, full(getattr(place, name)))
        try:
            prepare(source, target)
        except NoSpace:
            failed = True
    assert failed
    receipt = read_receipt(target)
    assert receipt == first
    assert target.exists() == before
    assert receipt is None or receipt.matches(target)
    assert prepare(source, target).details["train_rows"] + len(held_out(target)) == 101
    assert first is None or read_receipt(target) != first
    assert [path.name for path in target.parent.iterdir()] == ["dataset"]


def test_too_little_room_is_noticed_before_anything_is_copied(
    source: Path, target: Path, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(source / "rows.jsonl", rows)
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(1, 0, 1))
    with pytest.raises(NoSpace, match="needed, 1 B free"):
        prepare(source, target)
    assert not target.exists()


def test_a_source_that_cannot_be_read_is_no_traceback(
    source: Path, target: Path, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(source / "rows.jsonl", rows)

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(source))

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(StorageError, match=f"{source}: Permission denied"):
        prepare(source, target)


def test_two_that_prepare_the_same_target_at_once_leave_one_whole_folder(source: Path, target: Path, rows: Rows) -> None:
    write(source / "rows.jsonl", rows)
    barrier = threading.Barrier(4)

    def run(_: int) -> Receipt:
        barrier.wait()
        return prepare(source, target)

    with ThreadPoolExecutor(4) as pool:
        receipts = list(pool.map(run, range(4)))
    assert len({receipt.digest for receipt in receipts}) == 1
    assert receipts[0].matches(target)
    assert [path.name for path in target.parent.iterdir()] == ["dataset"]


def test_others_may_read_what_was_prepared(source: Path, target: Path, rows: Rows) -> None:
    write(source / "rows.jsonl", rows)
    prepare(source, target)
    assert target.stat().st_mode & 0o055 == 0o055


@pytest.mark.medium
def test_the_datasets_library_loads_what_was_prepared(
    source: Path, target: Path, rows: Rows, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("datasets")
    from datasets import load_dataset

    write(source / "rows.jsonl", rows)
    for fraction, splits in ((0.1, {"train", "test"}), (0, {"train"})):
        prepare(source, target, test_fraction=fraction)
        loaded = load_dataset(str(target), cache_dir=str(tmp_path / f"cache-{fraction}"))
        assert set(loaded) == splits
        assert loaded["train"].column_names == ["prompt", "completion"]


def test_rows_that_mark_bad_answers_are_refused(source: Path, target: Path) -> None:
    rows = [{"prompt": "p", "completion": "bad answer", "label": False}]
    write(source / "kto.jsonl", rows)
    with pytest.raises(InitializerError, match="'label' is true or false, as in rows for KTO, but the layout leaves it out"):
        prepare(source, target, test_fraction=0, layout="prompt-completion")
    chosen = prepare(source, target, test_fraction=0, columns={"prompt": "prompt", "completion": "completion"})
    assert chosen.details["train_rows"] == 1  # whoever names the columns has decided


def test_bad_answers_of_a_csv_file_are_refused(source: Path, target: Path) -> None:
    (source / "kto.csv").write_text("question,answer,label\np,bad answer,False\n")
    with pytest.raises(InitializerError, match="as in rows for KTO"):
        prepare(source, target, test_fraction=0)


def test_marked_answers_keep_their_marks(source: Path, target: Path) -> None:
    (source / "kto.csv").write_text("prompt,completion,label\np,good,True\np,bad,False\n")
    assert prepare(source, target, test_fraction=0).details["layout"] == "kto"
    assert [row["label"] for row in train(target)] == [True, False]


def test_answers_with_the_same_mark_are_refused(source: Path, target: Path) -> None:
    write(source / "kto.jsonl", [{"prompt": "p", "completion": answer, "label": 1} for answer in "abc"])
    with pytest.raises(InitializerError, match="all rows to train on have the label True, but KTO learns from the difference"):
        prepare(source, target, test_fraction=0)


def test_caches_beside_a_saved_dataset_are_not_read(source: Path, target: Path) -> None:
    saved = pytest.importorskip("datasets").Dataset.from_list([{"text": "a"}, {"text": "b"}])
    saved.save_to_disk(source / "train")
    shutil.copy(source / "train/data-00000-of-00001.arrow", source / "train/cache-0123456789abcdef.arrow")
    assert prepare(source, target, test_fraction=0).details["train_rows"] == 2


def test_columns_that_are_not_read_are_named(source: Path, target: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(source / "a.jsonl", [{"instruction": "i", "input": "", "output": "o", "tools": "", "history": [], "label": "news"}] * 2)
    assert prepare(source, target, test_fraction=0).details["dropped_columns"] == ["label", "tools", "history"]
    assert caplog.text.count("event=columns_dropped") == 1


def talk(*messages: tuple[str, str] | tuple[str, str, int]) -> dict[str, Any]:
    """Messages with role, content and perhaps weight."""
    fields = ("role", "content", "weight")
    return {"messages": [dict(zip(fields, message, strict=False)) for message in messages]}


WEIGHTED = talk(("user", "a"), ("assistant", "b", 0), ("user", "c"), ("assistant", "d", 1), ("user", "e"), ("assistant", "f"))


def test_answers_of_weight_0_are_not_learned(source: Path, target: Path) -> None:
    plain = talk(("user", "u"), ("assistant", "v", 1))
    write(source / "a.jsonl", [{**plain, "tools": [{"name": "t"}]}, WEIGHTED])
    receipt = prepare(source, target, test_fraction=0)
    talks = [(row["prompt"], row["completion"]) for row in train(target)]
    user_a, answer_b, user_c, answer_d, user_e, answer_f = [{**message} for message in WEIGHTED["messages"]]
    for message in (answer_b, answer_d):
        del message["weight"]
    assert talks == [
        ([{"role": "user", "content": "u"}], [{"role": "assistant", "content": "v"}]),
        ([user_a, answer_b, user_c], [answer_d]),
        ([user_a, answer_b, user_c, answer_d, user_e], [answer_f]),
    ]
    assert [row["tools"] for row in train(target)] == ['[{"name": "t"}]', "null", "null"]
    assert (receipt.details["train_rows"], receipt.details["layout"]) == (3, "messages")


def test_conversations_without_weight_0_stay_whole(source: Path, target: Path) -> None:
    plain = talk(("user", "u"), ("assistant", "v", 1))
    write(source / "a.jsonl", [plain])
    prepare(source, target, test_fraction=0)
    assert train(target) == [talk(("user", "u"), ("assistant", "v"))]


def test_conversations_with_nothing_to_learn_are_counted_as_empty(source: Path, target: Path) -> None:
    nothing = [talk(("user", "u"), ("assistant", "v", 0)), talk(("user", "u"), ("assistant", " "), ("assistant", "x", 0))]
    write(source / "a.jsonl", [*nothing, WEIGHTED])
    receipt = prepare(source, target, test_fraction=0)
    assert (receipt.details["train_rows"], receipt.details["empty_rows"]) == (2, 2)


def test_answers_of_a_conversation_are_held_out_together(source: Path, target: Path) -> None:
    turns = [
        (("user", f"{n}"), ("assistant", "x", 0), ("user", "c"), ("assistant", "d"), ("user", "e"), ("assistant", "f"))
        for n in range(60)
    ]
    write(source / "a.jsonl", [talk(*each) for each in turns])
    prepare(source, target, test_fraction=0.3)
    sides = [{row["prompt"][0]["content"] for row in rows} for rows in (train(target), held_out(target))]
    assert not sides[0] & sides[1]
    assert all(sides)
    assert len(train(target)) == 2 * len(sides[0])


def test_answer_to_learn_with_nothing_before_is_refused(source: Path, target: Path) -> None:
    write(source / "a.jsonl", [talk(("assistant", "hi"), ("user", "u"), ("assistant", "v", 0))])
    with pytest.raises(InitializerError, match=r"\(a.jsonl, row 1\): the first message is an answer to learn, .* the weight 0"):
        prepare(source, target, test_fraction=0)


@pytest.mark.parametrize(
    ("split", "options", "expected"),
    [
        ("train[:50%]", {}, "abcde"),
        ("train[50%:]", {}, "fghij"),
        ("train[2:4]", {}, "cd"),
        ("train[-3:]", {"max_rows": 2}, "hi"),
        ("test[1:]", {}, "y"),
    ],
)
def test_part_of_a_split_is_trained_on(source: Path, target: Path, split: str, options: Any, expected: str) -> None:
    write(source / "train-1.jsonl", [{"text": letter} for letter in "abcdef"])
    write(source / "train-2.jsonl", [{"text": letter} for letter in "ghij"])
    write(source / "test.jsonl", [{"text": letter} for letter in "xy"])
    receipt = prepare(source, target, test_fraction=0, split=split, **options)
    assert "".join(row["text"] for row in train(target)) == expected
    assert receipt.details["split"] == split
    assert "".join(row["text"] for row in held_out(target)) == ("" if split.startswith("test") else "xy")


def test_part_without_rows_is_refused(source: Path, target: Path) -> None:
    write(source / "train.jsonl", [{"text": "a"}])
    with pytest.raises(InitializerError, match=r"has no rows to train on in split='train\[5:\]'"):
        prepare(source, target, split="train[5:]")


def test_questions_for_a_chat_template_are_prepared_again(source: Path, target: Path) -> None:
    write(source / "a.jsonl", [{"question": "question", "answer": "answer"}])
    uri = str(StorageUri.from_path(source))
    texts = initialize_dataset(uri, target, DatasetOptions(test_fraction=0))
    assert train(target) == [{"prompt": "question\n\n", "completion": "answer"}]
    messages = initialize_dataset(uri, target, DatasetOptions(test_fraction=0), as_messages=True)
    assert train(target) == [{"prompt": [USER], "completion": [ASSISTANT]}]
    assert (texts.details["questions"], messages.details["questions"]) == ("text", "messages")


def test_rows_that_are_held_out_too_can_be_left_out_of_the_training(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    train = [{"prompt": "Où est  le bateau?", "completion": "Ici."}, {"prompt": "a", "completion": "1"}] * 2
    for name, rows in (("train", train), ("test", [{"prompt": "où est le\nbateau?", "completion": "ici."}])):
        (source / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    kept = initialize_dataset(f"file://{source}", tmp_path / "all", DatasetOptions())
    assert kept.details["train_rows"] == 4
    receipt = initialize_dataset(f"file://{source}", tmp_path / "some", DatasetOptions(drop_overlap=True))
    assert (receipt.details["train_rows"], receipt.details["overlapping_rows"], receipt.details["test_rows"]) == (2, 2, 1)
    rows = [json.loads(line) for line in (tmp_path / "some" / "train.jsonl").read_text("utf-8").splitlines()]
    assert rows == [{"prompt": "a", "completion": "1"}] * 2
    assert not [*(tmp_path / "some").glob("*.kept")]
    (source / "train.jsonl").write_text(json.dumps(train[0]) + "\n", "utf-8")
    with pytest.raises(InitializerError, match=r"no rows to train on: all 1 rows are held-out rows, too \(drop_overlap\)"):
        initialize_dataset(f"file://{source}", tmp_path / "none", DatasetOptions(drop_overlap=True))


@pytest.mark.parametrize(
    "held_out",
    ["hello world ", "hello world\n", " Hello  world", "hello\fworld", "hello\u200b world", "\uff48ello world", "HELLO\\nworld"],
)
def test_rows_with_the_same_words_are_the_same_row(tmp_path: Path, held_out: str) -> None:
    for name, text in (("train", "hello world"), ("test", held_out)):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": text, "n": 1}, ensure_ascii=False) + "\n", "utf-8")
    same = "\\" not in held_out
    assert rows_in_common(tmp_path / "train.jsonl", tmp_path / "test.jsonl") == int(same)


def test_rows_that_are_left_out_are_not_the_last_of_a_label(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    bad = {"prompt": "q", "completion": "bad", "label": False}
    rows = [{"prompt": "q", "completion": f"good {number}", "label": True} for number in range(5)]
    for name, content in (("train", [*rows, bad]), ("test", [bad])):
        (source / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content), "utf-8")
    with pytest.raises(InitializerError, match="all rows to train on have the label True"):
        initialize_dataset(f"file://{source}", tmp_path / "out", DatasetOptions(drop_overlap=True))
