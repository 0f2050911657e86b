"""A claim never sees the files of an earlier one of its name, and those are never lost."""

from __future__ import annotations

from pathlib import Path

from trainwright.controlplane.host_paths import SET_ASIDE, take_folder


def claim(uid: str) -> dict[str, dict[str, str]]:
    return {"metadata": {"name": "c", "namespace": "default", "uid": uid}}


def used(claims: Path, uid: str) -> Path:
    folder = claims / "default" / "c"
    take_folder(claim(uid), folder, claims)
    folder.mkdir(exist_ok=True)
    return folder


def test_a_later_claim_of_the_name_gets_an_empty_folder_and_the_data_is_set_aside(tmp_path: Path) -> None:
    (used(tmp_path, "1") / "model").write_text("first")
    assert (used(tmp_path, "1") / "model").read_text() == "first"
    assert not list(used(tmp_path, "2").iterdir())
    (used(tmp_path, "2") / "model").write_text("second")
    assert not list(used(tmp_path, "3").iterdir())
    kept = {path.parent.name: path.read_text() for path in (tmp_path / SET_ASIDE / "default").rglob("model")}
    assert kept == {"c.1": "first", "c.2": "second"}


def test_data_of_an_ephemeral_volume_are_not_kept_for_the_next_pod(tmp_path: Path) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p-1", "controller": True}
    folder = tmp_path / "default" / "c"
    take_folder({"metadata": {**claim("1")["metadata"], "ownerReferences": [owner]}}, folder, tmp_path)
    folder.mkdir()
    (folder / "scratch").touch()
    assert not list(used(tmp_path, "2").iterdir())
    assert not (tmp_path / SET_ASIDE).exists()


def test_a_folder_that_the_operator_put_there_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "default" / "c"
    folder.mkdir(parents=True)
    (folder / "model").touch()
    assert (used(tmp_path, "1") / "model").exists()


def test_a_claim_whose_folder_is_gone_gets_a_new_one(tmp_path: Path) -> None:
    used(tmp_path, "1").rmdir()
    assert used(tmp_path, "2").is_dir()
    assert not (tmp_path / SET_ASIDE).exists()
