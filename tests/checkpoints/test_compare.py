"""What differs between two exports, for the command and the page."""

from __future__ import annotations

from typing import Any

from trainwright.checkpoints.exported import changed_fields, compare_exports, flat_fields, has_same_files, recorded_fields
from trainwright.checkpoints.manifest import Manifest, ManifestFile


def manifest(files: dict[str, str], **fields: Any) -> Manifest:
    listed = tuple(ManifestFile(path=path, size=1, sha256=letter * 64, key=f"a/{path}") for path, letter in files.items())
    about: dict[str, Any] = {
        "format": "model",
        "step": 5,
        "source": "run",
        "created": "2026-01-01T00:00:00Z",
        "confirmed": "checked",
    }
    return Manifest(**{**about, "files": listed, **fields})


def test_files_are_compared_by_digest() -> None:
    found = compare_exports(manifest({"a": "0", "b": "0", "c": "0"}), manifest({"b": "0", "c": "1", "d": "0"}))
    assert (found["added"], found["removed"], found["changed"], found["unchanged"]) == (["d"], ["a"], ["c"], 1)
    assert found["bytes"] == [3, 3]
    assert not has_same_files(found)


def test_metrics_of_both_are_listed() -> None:
    one, other = manifest({"a": "0"}, metrics={"loss": 2.0}), manifest({"a": "0"}, metrics={"acc": 1.0})
    found = compare_exports(one, other)
    assert found["metrics"] == {"acc": [None, 1.0], "loss": [2.0, None]}
    assert has_same_files(found)


def test_recorded_fields_are_flat_and_without_the_history() -> None:
    metadata = {"origin": {"dataset": "x"}, "log_history": [{"loss": 1}], "starts": ["a"], "empty": {}}
    found = recorded_fields(manifest({"a": "0"}, metadata=metadata))
    assert found["origin.dataset"] == "x"
    assert (found["starts"], found["empty"]) == (["a"], {})
    assert not any("log_history" in name for name in found)


def test_fields_are_bounded() -> None:
    assert len(flat_fields({str(number): number for number in range(10_000)})) == 500


def test_changed_fields_have_both_values() -> None:
    assert changed_fields({"a": 1, "b": 2}, {"b": 3, "c": None}) == {"a": [1, None], "b": [2, 3]}
