"""A missing file, and one whose volume is not mounted, are different errors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainwright.storage import open as module
from trainwright.storage.errors import NotMounted, NotPermitted
from trainwright.storage.open import check_mounted


@pytest.mark.parametrize("uri", ["file:///no-such-volume", "file:///no-such-volume/exports/champion.json"])
def test_a_path_without_its_volume_is_not_mounted(uri: str) -> None:
    with pytest.raises(
        NotMounted, match=f"{uri}: /no-such-volume does not exist where this step runs, .* mount the volume there"
    ):
        check_mounted(uri)


def test_a_missing_folder_of_a_seen_volume_is_a_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.setattr(module, "_MOUNT_PARENTS", (Path("/"), tmp_path))
    for path in ("volume", "volume/exports", "volume/team/exports/champion.json", "file/exports"):
        check_mounted((tmp_path / path).as_uri())
    check_mounted("file:///")
    check_mounted("s3://bucket/no-such-volume")
    with pytest.raises(NotMounted, match=f"{tmp_path}/other does not exist"):
        check_mounted((tmp_path / "other/exports").as_uri())


def test_a_folder_that_may_not_be_searched_is_not_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", denied)
        with pytest.raises(NotPermitted, match="/srv/exports may not be read by this process"):
            check_mounted("file:///srv/exports/champion.json")
