"""The folder of pods is marked for ext4, and left alone elsewhere."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from trainwright.controlplane.node.volumes.files import TOP_OF_HIERARCHIES, folder_flags, spread_folders

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the flag is one of Linux")


def test_a_folder_is_marked_once(tmp_path: Path) -> None:
    if not spread_folders(tmp_path):
        pytest.skip("the file system of the temporary folder has no flag for folders: set TMPDIR to one on ext4")
    assert spread_folders(tmp_path)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        assert folder_flags(descriptor) & TOP_OF_HIERARCHIES
    finally:
        os.close(descriptor)
    (tmp_path / "pod").mkdir()
    assert (tmp_path / "pod").is_dir()


def test_a_file_system_without_the_mark_is_fine() -> None:
    assert not spread_folders(Path("/proc/self"))


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        spread_folders(tmp_path / "missing")
