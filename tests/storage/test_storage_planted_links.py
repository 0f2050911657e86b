"""Nobody else's link, pipe or folder leads what we write, lock or delete out of the folder that it is meant for."""

import logging
import os
from pathlib import Path

import pytest

from trainwright.storage.errors import StorageError, UnsafeFile
from trainwright.storage.locks import file_lock, try_lock_file
from trainwright.storage.scratch import _short, scratch_folder


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A folder elsewhere that must stay as it is."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "file").write_bytes(b"precious")
    (folder / "work").mkdir()
    (folder / "work" / "file").write_bytes(b"precious")
    return folder


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    folder = tmp_path / "volume"
    folder.mkdir()
    return folder


def known_name(target: str, purpose: str, number: int = 0) -> str:
    """The name of a scratch folder, which anybody can compute."""
    return f".{_short(target)}-{_short(purpose)}.{number}"


def write_and_check(parent: Path, precious: Path) -> Path:
    with scratch_folder(parent / "target", "a") as folder:
        (folder / "file").write_bytes(b"ours")
        assert precious not in folder.resolve().parents
    assert (precious / "file").read_bytes() == b"precious"
    assert (precious / "work" / "file").read_bytes() == b"precious"
    assert sorted(path.name for path in precious.iterdir()) == ["file", "work"]
    return folder


def test_a_link_in_place_of_the_folder_is_not_used(parent: Path, precious: Path, caplog: pytest.LogCaptureFixture) -> None:
    planted = parent / known_name("target", "a")
    planted.symlink_to(precious)
    with caplog.at_level(logging.WARNING):
        write_and_check(parent, precious)
    assert f"event=scratch_folder_refused path={planted}" in caplog.text
    assert planted.is_symlink()


@pytest.mark.parametrize("planted", ["work", "work/file", "work/sub", "lock"])
def test_a_link_inside_the_folder_is_not_followed(parent: Path, precious: Path, planted: str) -> None:
    folder = parent / known_name("target", "a")
    folder.mkdir(mode=0o700)
    link = folder / planted
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(precious / "file" if planted in ("work/file", "lock") else precious)
    write_and_check(parent, precious)


def test_a_second_name_of_a_file_elsewhere_is_not_written_to(parent: Path, precious: Path) -> None:
    folder = parent / known_name("target", "a")
    (folder / "work").mkdir(parents=True)
    folder.chmod(0o700)
    os.link(precious / "file", folder / "work" / "file")
    write_and_check(parent, precious)


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_something_else_in_place_of_work_is_replaced(parent: Path, precious: Path, kind: str) -> None:
    folder = parent / known_name("target", "a")
    folder.mkdir(mode=0o700)
    if kind == "pipe":
        os.mkfifo(folder / "work")
    else:
        (folder / "work").write_bytes(b"")
    write_and_check(parent, precious)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_could_write_to_is_cleared_not_resumed(parent: Path, mode: int) -> None:
    folder = parent / known_name("target", "a")
    (folder / "work").mkdir(parents=True)
    (folder / "work" / "model.safetensors").write_bytes(b"planted")
    folder.chmod(mode)
    with scratch_folder(parent / "target", "a") as scratch:
        assert not list(scratch.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_neither_used_nor_removed(parent: Path) -> None:
    folder = parent / known_name("target", "a")
    (folder / "work").mkdir(parents=True)
    folder.chmod(0o700)
    os.chown(folder, 12345, 12345)
    with scratch_folder(parent / "target", "a") as scratch:
        assert scratch.parent != folder
        assert scratch.parent.stat().st_mode & 0o777 == 0o700
    assert (folder / "work").is_dir()


def test_a_volume_that_shows_one_owner_and_no_modes_is_still_resumed_on(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS with all_squash, and SMB: a folder that was just made shows what every other one shows."""
    real_fstat, real_lstat = os.fstat, os.lstat

    def squashed(found: os.stat_result) -> os.stat_result:
        fields = list(found)
        fields[0], fields[4] = found.st_mode | 0o777, 65534
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", lambda descriptor: squashed(real_fstat(descriptor)))
    monkeypatch.setattr(os, "lstat", lambda path, **options: squashed(real_lstat(path, **options)))
    with pytest.raises(StorageError), scratch_folder(parent / "target", "a") as folder:  # noqa: PT012
        (folder / "file").write_bytes(b"1")
        raise StorageError
    with scratch_folder(parent / "target", "a") as folder:
        assert (folder / "file").read_bytes() == b"1"


def test_when_every_name_is_taken_by_links_it_is_said_which(parent: Path, precious: Path) -> None:
    for number in range(64):
        (parent / known_name("target", "a", number)).symlink_to(precious)
    with pytest.raises(StorageError, match=r"63 is not a private folder of this user and is not used: remove it"):
        write_and_check(parent, precious)


def test_links_of_another_purpose_are_not_followed_either(parent: Path, precious: Path) -> None:
    (parent / known_name("target", "b")).symlink_to(precious)
    write_and_check(parent, precious)
    assert not (precious / "lock").exists()


@pytest.mark.parametrize("kind", ["link", "dangling-link", "pipe"])
def test_a_lock_file_is_a_regular_file(parent: Path, precious: Path, kind: str) -> None:
    lock = parent / ".target.lock"
    if kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.symlink_to(precious / ("file" if kind == "link" else "created"))
    with pytest.raises(UnsafeFile, match=r"\.target\.lock is .*remove it"):
        try_lock_file(lock)
    with pytest.raises(StorageError), file_lock(lock):
        pytest.fail("entered")
    assert not (precious / "created").exists()
    assert (precious / "file").read_bytes() == b"precious"
