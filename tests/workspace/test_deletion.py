"""Folders are removed although their files are read-only; what is outside of them is never changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from trainwright.workspace import deletion
from trainwright.workspace.deletion import remove_tree


def test_permissions_below_a_folder_are_added_by_name_and_never_through_a_link(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "folder"
    for each in (elsewhere / "inner", folder / "inner"):
        each.mkdir(parents=True)
        each.chmod(0o500)
    deletion._permit(folder, str(folder / "inner"))
    assert stat.S_IMODE((folder / "inner").stat().st_mode) == 0o700
    (folder / "inner").rmdir()
    folder.rmdir()
    folder.symlink_to(elsewhere)  # as somebody else may do between two looks
    for directory in (folder, folder / "inner"):
        with pytest.raises(OSError, match=r"(?i)not a directory|too many levels"):
            deletion._permit(folder, str(directory))
    assert stat.S_IMODE((elsewhere / "inner").stat().st_mode) == 0o500


@pytest.mark.skipif(os.geteuid() == 0, reason="root may remove everything at once")
def test_a_folder_without_permissions_is_removed(tmp_path: Path) -> None:
    (tmp_path / "folder/inner").mkdir(parents=True)
    (tmp_path / "folder/inner/file").write_text("a")
    (tmp_path / "folder/inner").chmod(0o000)
    (tmp_path / "folder").chmod(0o500)
    remove_tree(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
