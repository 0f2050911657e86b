"""Datasets and models in the store that all runs of a workspace share: prepared once, found again, never replaced by others."""

from __future__ import annotations

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
    Prepared,
    initialize_dataset,
    initialize_model,
    prepare_dataset,
    prepare_model,
)
from trainwright.initializers import dataset_files as dataset_module
from trainwright.initializers import model as model_module
from trainwright.storage.errors import NoSpace
from trainwright.storage.uri import StorageUri


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


@pytest.fixture
def source(tmp_path: Path, lines: bytes) -> str:
    (tmp_path / "rows.jsonl").write_bytes(lines)
    return str(StorageUri.from_path(tmp_path / "rows.jsonl"))


@pytest.fixture
def model(tmp_path: Path, model_files: dict[str, bytes]) -> str:
    (tmp_path / "model").mkdir()
    for name, content in model_files.items():
        (tmp_path / "model" / name).write_bytes(content)
    return str(StorageUri.from_path(tmp_path / "model"))


@pytest.fixture
def no_fetch(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, nothing may be fetched."""

    def forbid() -> None:
        for module in (dataset_module, model_module):
            monkeypatch.setattr(module, "fetch", lambda *_: pytest.fail("fetched again"))

    return forbid


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".index")


def hex_of(prepared: Prepared) -> str:
    return prepared.digest.removeprefix("sha256:")


def test_a_dataset_and_a_model_lie_under_their_digests(workspace: Path, source: str, model: str) -> None:
    dataset, weights = prepare_dataset(source, workspace), prepare_model(model, workspace)
    assert dataset.folder == workspace / "datasets" / hex_of(dataset)
    assert weights.folder == workspace / "models" / hex_of(weights)
    assert visible(dataset.folder) == [".trainwright-receipt.json", "README.md", "test.jsonl", "train.jsonl"]
    assert (dataset.receipt.source, weights.receipt.source) == (source, model)
    for prepared in (dataset, weights):
        assert prepared.receipt.matches(prepared.folder)
        assert {stat.S_IMODE(path.stat().st_mode) for path in prepared.folder.iterdir()} == {0o444}
        assert visible(prepared.folder.parent) == [prepared.folder.name]
    assert sorted(path.name for path in workspace.iterdir()) == ["datasets", "models"]


def test_the_digest_is_that_of_an_explicit_target(workspace: Path, source: str, model: str, tmp_path: Path) -> None:
    assert prepare_dataset(source, workspace).digest == initialize_dataset(source, tmp_path / "target").digest
    assert prepare_model(model, workspace).digest == initialize_model(model, tmp_path / "weights").digest


def test_prepared_inputs_are_not_fetched_again(
    workspace: Path, source: str, model: str, no_fetch: Callable[[], None], tmp_path: Path
) -> None:
    options = DatasetOptions(test_fraction=0.3)
    dataset, weights = prepare_dataset(source, workspace, options), prepare_model(model, workspace)
    no_fetch()
    assert prepare_dataset(source, workspace, options) == dataset
    assert prepare_dataset(source, workspace) == dataset  # no options: whatever there is
    assert prepare_model(model, workspace) == weights
    (tmp_path / "rows.jsonl").unlink()
    shutil.rmtree(tmp_path / "model")  # the sources are on another machine
    assert prepare_dataset(source, workspace, options) == dataset
    assert prepare_model(model, workspace) == weights


def test_another_source_or_other_options_leave_what_there_is_alone(
    workspace: Path, source: str, tmp_path: Path, lines: bytes, no_fetch: Callable[[], None]
) -> None:
    first = prepare_dataset(source, workspace, DatasetOptions())
    second = prepare_dataset(source, workspace, DatasetOptions(max_rows=10))
    (tmp_path / "rows.jsonl").write_bytes(lines[: lines.index(b"\n") + 1] * 2)
    third = prepare_dataset(source, workspace, DatasetOptions(test_fraction=0))
    assert len({first.digest, second.digest, third.digest}) == 3
    for prepared in (first, second, third):
        assert prepared.receipt.matches(prepared.folder)
    assert visible(workspace / "datasets") == sorted(hex_of(prepared) for prepared in (first, second, third))
    no_fetch()
    (tmp_path / "rows.jsonl").unlink()
    assert prepare_dataset(source, workspace, DatasetOptions(max_rows=10)) == second
    assert prepare_dataset(source, workspace) == third  # the newest


def test_the_same_contents_from_elsewhere_share_one_folder(workspace: Path, source: str, tmp_path: Path, lines: bytes) -> None:
    first = prepare_dataset(source, workspace)
    (tmp_path / "copy.jsonl").write_bytes(lines)
    copy = str(StorageUri.from_path(tmp_path / "copy.jsonl"))
    second = prepare_dataset(copy, workspace)
    assert second.folder == first.folder
    assert second.receipt.source == copy
    assert prepare_dataset(copy, workspace) == second


@pytest.mark.parametrize("kind", ["dataset", "model"])
def test_a_damaged_folder_is_prepared_again(
    workspace: Path, source: str, model: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def prepare() -> Prepared:
        return prepare_dataset(source, workspace) if kind == "dataset" else prepare_model(model, workspace)

    first = prepare()
    path = first.folder / first.receipt.files[0].path
    path.chmod(0o644)
    path.write_bytes(b"x" * path.stat().st_size)
    assert prepare() == first
    assert first.receipt.matches(first.folder)
    assert "is corrupt and is replaced" in caplog.text


def test_foreign_files_at_the_root_are_kept(workspace: Path, source: str) -> None:
    (workspace / "dataset").mkdir(parents=True)
    (workspace / "dataset" / "precious").write_bytes(b"x")
    prepare_dataset(source, workspace)
    assert (workspace / "dataset" / "precious").read_bytes() == b"x"


def test_a_source_that_cannot_be_used_leaves_nothing(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "q"}))
    with pytest.raises(InitializerError, match="has the columns question; expected"):
        prepare_dataset(str(StorageUri.from_path(tmp_path / "rows.jsonl")), workspace)
    with pytest.raises(InitializerError, match="does not exist"):
        prepare_model(str(StorageUri.from_path(tmp_path / "nothing")), workspace)
    assert visible(workspace / "datasets") == visible(workspace / "models") == []


@pytest.mark.parametrize("number", range(1, 7))
def test_a_full_disk_at_any_time_leaves_nothing_half_and_the_next_run_finishes(
    workspace: Path, source: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    calls = 0

    def full(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                raise OSError(28, os.strerror(28))
            return real(*arguments)

        return call

    with monkeypatch.context() as patched:
        for name in ("replace", "rename"):
            patched.setattr(os, name, full(getattr(os, name)))
        try:
            prepare_dataset(source, workspace)
        except NoSpace:
            assert calls >= number
    prepared = prepare_dataset(source, workspace)
    assert prepared.receipt.matches(prepared.folder)
    # A scratch folder whose own removal failed is hidden; pruning removes it.
    assert [name for name in visible(workspace / "datasets") if not name.startswith(".")] == [prepared.folder.name]


def test_two_runs_that_prepare_the_same_at_once_share_one_whole_folder(workspace: Path, source: str, model: str) -> None:
    barrier = threading.Barrier(6)

    def run(number: int) -> Prepared:
        barrier.wait()
        return prepare_dataset(source, workspace) if number % 2 else prepare_model(model, workspace)

    with ThreadPoolExecutor(6) as pool:
        everything = list(pool.map(run, range(6)))
    assert len({prepared.folder for prepared in everything}) == 2
    for prepared in everything:
        assert prepared.receipt.matches(prepared.folder)
        assert visible(prepared.folder.parent) == [prepared.folder.name]


def test_runs_that_prepare_different_things_at_once_do_not_disturb_each_other(workspace: Path, source: str) -> None:
    barrier = threading.Barrier(4)

    def run(number: int) -> Prepared:
        barrier.wait()
        return prepare_dataset(source, workspace, DatasetOptions(max_rows=10 + number, test_fraction=0))

    with ThreadPoolExecutor(4) as pool:
        everything = list(pool.map(run, range(4)))
    assert [prepared.receipt.details["train_rows"] for prepared in everything] == [10, 11, 12, 13]
    for prepared in everything:
        assert prepared.receipt.matches(prepared.folder)
    assert visible(workspace / "datasets") == sorted(hex_of(prepared) for prepared in everything)
