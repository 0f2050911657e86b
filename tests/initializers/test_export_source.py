"""An export is a source like any other: its manifest says what it has, and the receipt says what was taken."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers.s3_server import S3Server

from trainwright.checkpoints import pin
from trainwright.checkpoints.publish import ExportOptions, export_checkpoint
from trainwright.initializers import DatasetOptions, InitializerError, initialize_dataset, initialize_model
from trainwright.storage import StorageUri
from trainwright.storage.errors import ChecksumMismatch
from trainwright.storage.file_store import FileStore


@pytest.fixture
def exported(tmp_path: Path, model_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Exports a trained model of a step to a folder of exports."""
    monkeypatch.setattr(pin, "QUIET_SECONDS", 0.0)

    def export(step: int, target: str, **options: Any) -> Any:
        folder = tmp_path / "output" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        for name, content in model_files.items():
            (folder / name).write_bytes(content)
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        return export_checkpoint(tmp_path / "output", target, source="run/job", step=step, options=ExportOptions(**options))

    return export


def uri_of(folder: Path) -> str:
    return str(StorageUri.from_path(folder))


@pytest.mark.parametrize("named", ["the export", "its run"])
def test_an_export_is_a_model_and_the_receipt_says_which(
    tmp_path: Path, exported: Callable[..., Any], model_files: dict[str, bytes], named: str
) -> None:
    exports = uri_of(tmp_path / "exports")
    exported(5, exports)
    latest = exported(10, exports)
    receipt = initialize_model(latest.uri if named == "the export" else exports, tmp_path / "model")
    assert receipt.revision == f"export:{latest.digest}"
    assert receipt.details["export"] == {"uri": latest.uri, "digest": latest.digest, "step": 10, "source": "run/job"}
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == model_files["model.safetensors"]
    assert not any((tmp_path / "model").glob("2026*"))
    first = initialize_model(f"{exports}/checkpoint-5", tmp_path / "first")
    assert first.details["export"]["step"] == 5


@pytest.mark.medium
def test_an_export_in_a_bucket_is_a_model(s3: S3Server, s3_folder: str, tmp_path: Path, exported: Callable[..., Any]) -> None:
    found = exported(5, s3_folder)
    receipt = initialize_model(s3_folder, tmp_path / "model")
    assert receipt.details["export"]["digest"] == found.digest
    assert initialize_model(s3_folder, tmp_path / "model") == receipt


def test_a_new_export_is_taken_and_an_unchanged_one_is_not_fetched_again(
    tmp_path: Path, exported: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    exports = uri_of(tmp_path / "exports")
    exported(5, exports)
    before = initialize_model(exports, tmp_path / "model")
    with monkeypatch.context() as patch:
        patch.delattr(FileStore, "get")
        assert initialize_model(exports, tmp_path / "model") == before
    exported(10, exports)
    assert initialize_model(exports, tmp_path / "model").details["export"]["step"] == 10


def test_a_damaged_export_is_refused(tmp_path: Path, exported: Callable[..., Any]) -> None:
    found = exported(5, uri_of(tmp_path / "exports"))
    (weights,) = (tmp_path / "exports").rglob("model.safetensors")
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ChecksumMismatch, match=r"model\.safetensors is corrupt: its SHA-256 differs from the manifest"):
        initialize_model(found.uri, tmp_path / "model")
    (tmp_path / "exports" / "checkpoint-5" / "manifest.json").write_text('{"version": 9, "format": "", "step": 1, "files": []}')
    with pytest.raises(InitializerError, match="has version 9"):
        initialize_model(found.uri, tmp_path / "model")


def test_a_manifest_of_another_program_makes_no_export(tmp_path: Path, model_files: dict[str, bytes], lines: bytes) -> None:
    for content in (b"{", b"[]", b'{"name": "web"}'):
        folder = tmp_path / "source"
        folder.mkdir()
        for name, each in model_files.items():
            (folder / name).write_bytes(each)
        (folder / "manifest.json").write_bytes(content)
        assert initialize_model(uri_of(folder), tmp_path / "model").revision.startswith("stat:")
        shutil.rmtree(folder)
    (tmp_path / "rows.jsonl").write_bytes(lines)
    assert initialize_dataset(uri_of(tmp_path / "rows.jsonl"), tmp_path / "data", DatasetOptions()).revision.startswith("stat:")


def test_an_exported_dataset_is_a_dataset_and_the_receipt_says_which(
    tmp_path: Path, lines: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pin, "QUIET_SECONDS", 0.0)
    folder = tmp_path / "output" / "step-3"
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_bytes(lines)
    (folder / ".complete").write_text("")
    found = export_checkpoint(tmp_path / "output", uri_of(tmp_path / "exports"), source="run/job")
    receipt = initialize_dataset(uri_of(tmp_path / "exports"), tmp_path / "data", DatasetOptions())
    assert receipt.revision == f"export:{found.digest}"
    assert receipt.details["export"]["step"] == 3
