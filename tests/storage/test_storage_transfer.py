"""Copying in one pass, asking for space first, and walking folders without missing any."""

import errno
import hashlib
import os
import shutil
from pathlib import Path

import pytest

from trainwright.storage.errors import NoSpace, NotPermitted, StorageError
from trainwright.storage.plain_files import files_below
from trainwright.storage.transfer import check_space, copy_file, disk_errors

MIB = 1024 * 1024


def test_a_copy_is_digested_reported_and_readable_by_others(tmp_path: Path) -> None:
    content = os.urandom(9 * MIB + 1)
    (tmp_path / "source").write_bytes(content)
    counted: list[int] = []
    copied = copy_file(tmp_path / "source", tmp_path / "a" / "b", counted.append)
    assert (copied.size, copied.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert sum(counted) == len(content)
    assert len(counted) == 3
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o644


def test_space_is_asked_for_where_the_folder_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def usage(path: Path) -> shutil._ntuple_diskusage:
        asked.append(path)
        return shutil._ntuple_diskusage(100 * MIB, 50 * MIB, 50 * MIB)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    check_space(tmp_path / "not" / "yet", 30 * MIB)
    with pytest.raises(NoSpace, match=r"not/yet: 40.0 MiB needed, 50.0 MiB free; free up space"):
        check_space(tmp_path / "not" / "yet", 40 * MIB)  # the last 16 MiB of a disk stay free
    assert set(asked) == {tmp_path}


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), NoSpace, "/target: the disk is full"),
        (OSError(errno.EACCES, "Permission denied", "/file"), NotPermitted, "/file: Permission denied (user "),
        (OSError(errno.EROFS, "Read-only file system"), NotPermitted, "/target: Read-only file system (user "),
        (OSError(errno.EIO, "Input/output error", "/file"), StorageError, "/file: Input/output error"),
        (OSError("only words"), StorageError, "/target: only words"),
    ],
)
def test_trouble_with_a_disk_names_the_path(error: OSError, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught, disk_errors(Path("/target")):
        raise error
    assert str(caught.value).startswith(message)


def test_all_files_below_are_found_but_folders_behind_links_are_not(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / ".hidden").write_bytes(b"")
    (tmp_path / "ü").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "ü")
    (tmp_path / "folder-link").symlink_to(tmp_path / "a")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    assert [path.as_posix() for path in files_below(tmp_path)] == ["a/b/.hidden", "link", "ü"]


def test_a_folder_that_cannot_be_read_is_not_taken_for_empty(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files_below(tmp_path / "missing")
