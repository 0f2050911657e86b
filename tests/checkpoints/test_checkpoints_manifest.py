"""A manifest reads back as it was written, leads nowhere else, and one that was changed is not the one of its digest."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.manifest import Manifest, ManifestFile

SHA = "a" * 64


def document(**changes: Any) -> dict[str, Any]:
    file = {"path": "model.safetensors", "size": 1, "sha256": SHA, "key": "attempt/model.safetensors"}
    whole = {"version": 1, "format": "hf-trainer", "step": 5, "source": "run", "created": "2026-01-01T00:00:00Z", "files": [file]}
    return {**whole, "confirmed": "checked", "metadata": {}, **changes}


def with_file(**changes: Any) -> dict[str, Any]:
    return document(files=[{**document()["files"][0], **changes}])


@given(
    st.text(st.characters(blacklist_categories=["Cs"])), st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5))
)
def test_manifest_reads_back_with_the_same_digest(source: str, metadata: dict[str, Any]) -> None:
    manifest = Manifest.model_validate(document(source=source, metadata=metadata))
    again = Manifest.parse(manifest.text(), "here")
    assert (again, again.digest, again.text()) == (manifest, manifest.digest, manifest.text())


@given(st.data())
def test_a_manifest_that_is_cut_off_is_none(data: st.DataObject) -> None:
    content = Manifest.model_validate(document()).text().rstrip()
    with pytest.raises(CheckpointError, match="here is not a valid manifest"):
        Manifest.parse(content[: data.draw(st.integers(0, len(content) - 1))], "here")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (document(version=3), "has version 3; this version of Trainwright supports version 1"),
        (document(confirmed=""), "confirmed: expected checked or read-back"),
        (with_file(key=""), "is outside of the export"),
        (with_file(key="../../a"), "is outside of the export"),
        (with_file(key="a/../b"), "is outside of the export"),
        (with_file(key="/a"), "is outside of the export"),
        (with_file(key="../"), "is outside of the export"),
        (with_file(crc64nvme="abc"), "files.0.crc64nvme"),
        (document(step="five"), "step: expected a whole number"),
        (document(unknown=1), "unknown: unknown"),
        (document(files=[]), "files must not be empty or contain duplicates"),
        (document(files=document()["files"] * 2), "files must not be empty or contain duplicates"),
        (with_file(path="../outside"), "'../outside' is outside of the export"),
        (with_file(path="a/../../b"), "is outside of the export"),
        (with_file(path="/etc/passwd"), "is outside of the export"),
        (with_file(path="a//b"), "is outside of the export"),
        (with_file(path=""), "is outside of the export"),
        (with_file(path="a\0b"), "is outside of the export"),
        (with_file(path="manifest.json"), "the manifest lists itself"),
        (with_file(size=-1), "files.0.size"),
        (with_file(sha256="A" * 64), "files.0.sha256"),
        (with_file(sha256=""), "files.0.sha256"),
        ([], "not JSON with a version"),
        (None, "not JSON with a version"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused_by_its_field(changed: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=r"^here ") as caught:
        Manifest.parse(json.dumps(changed).encode(), "here")
    assert message in str(caught.value)


def test_every_fact_is_in_the_digest() -> None:
    facts = [
        document(),
        document(step=6),
        document(source="other"),
        document(created="2026-01-01T00:00:01Z"),
        document(metadata={"loss": 1}),
        document(confirmed="read-back"),
        document(resumable=False),
        document(supersedes="sha256:1"),
        document(metrics={"loss": 0.5}),
        with_file(key="a/model.safetensors"),
        with_file(path="other"),
        with_file(size=2),
        with_file(sha256="b" * 64),
    ]
    assert len({Manifest.model_validate(fact).digest for fact in facts}) == len(facts)


def test_a_path_in_a_manifest_stays_below_any_folder(tmp_path: Path) -> None:
    file = ManifestFile(path="nested/ü.txt", size=0, sha256=SHA, key="attempt/nested/ü.txt")
    assert (tmp_path / file.path).resolve().is_relative_to(tmp_path.resolve())
