"""The component hands its options to the preparation: columns, a subset and a split."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.on_first_use import OnFirstUse
from support.optional_packages import require_packages

shipped = OnFirstUse("trainwright.components")
require_packages("kfp")


def pages_in(folder: Path) -> dict[str, SimpleNamespace]:
    """Return the artifacts of the report."""
    return {name: SimpleNamespace(path=str(folder / name), metadata={}) for name in ("report", "report_page")}


def test_columns_subset_and_split_choose_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("de/train.jsonl", "de/test.jsonl", "en/train.jsonl"):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_text(f'{{"words": "{name}"}}\n')
    artifact = SimpleNamespace(path=str(tmp_path / "receipt.json"), metadata={})
    options = {"columns": {"text": "words"}, "subset": "de", "split": "test", "test_fraction": 0.0}
    arguments = {"dataset_uri": f"file://{tmp_path}/source", "workspace_path": str(tmp_path / "workspace")}
    pages = pages_in(tmp_path)
    digest, train_rows, test_rows = shipped.initialize_dataset.python_func(dataset=artifact, **pages, **arguments, **options)
    assert (train_rows, test_rows) == (1, 0)
    [prepared] = (tmp_path / "workspace").glob("datasets/*/train.jsonl")
    assert prepared.read_text() == '{"text": "de/test.jsonl"}\n'
    assert artifact.metadata["digest"] == digest
    with pytest.raises(SystemExit):
        shipped.initialize_dataset.python_func(dataset=artifact, **pages, **arguments, columns={"text": "words"})
    assert "has several subsets; choose subset= one of de, en" in capsys.readouterr().err


def test_the_artifact_is_the_receipt_or_by_value_the_files(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    arguments: dict[str, Any] = {
        "dataset_uri": f"file://{tmp_path}/rows.jsonl",
        "workspace_path": str(tmp_path / "workspace"),
        "test_fraction": 0.0,
    }
    by_reference, by_value = (SimpleNamespace(path=str(tmp_path / name), metadata={}) for name in ("receipt", "files"))
    arguments |= pages_in(tmp_path)
    digest, *_ = shipped.initialize_dataset.python_func(dataset=by_reference, **arguments)
    assert json.loads(Path(by_reference.path).read_text())["details"]["report"]["splits"]["train"]["rows"] == 2
    assert "## Dataset" in (tmp_path / "report").read_text()
    assert (tmp_path / "report_page").read_text().startswith("<!doctype html>")
    assert [file["path"] for file in json.loads(Path(by_reference.path).read_text())["files"]] == ["README.md", "train.jsonl"]
    assert by_reference.metadata["digest"] == digest
    for _ in range(2):  # the second time as a retry
        shipped.initialize_dataset.python_func(dataset=by_value, **arguments, by_value=True)
    assert (Path(by_value.path) / "train.jsonl").read_text() == '{"text": "a"}\n{"text": "b"}\n'


def test_dataset_of_an_earlier_step_is_read_from_the_copy_in_this_one(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text('{"text": "a"}\n{"text": "b"}\n')  # as steps write their artifacts: without a suffix
    source = SimpleNamespace(uri="minio://mlpipeline/v2/artifacts/rows", path=str(tmp_path / "rows"), metadata={"rows": 2.0})
    receipt = SimpleNamespace(path=str(tmp_path / "receipt"), metadata={})
    arguments = {"workspace_path": str(tmp_path / "workspace"), "test_fraction": 0.0, **pages_in(tmp_path)}
    digest, train_rows, _ = shipped.initialize_dataset.python_func(dataset=receipt, source=source, **arguments)
    assert train_rows == 2
    assert receipt.metadata["digest"] == digest
