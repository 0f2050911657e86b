"""Locks: waiting has an end, a lock file that its holder removed is no lock, and a file system without locks stops nobody."""

import errno
import fcntl
import os
from pathlib import Path

import pytest
from support.manual_clock import ManualClock

from trainwright.flock import LocksNotSupported
from trainwright.storage.errors import StorageError
from trainwright.storage.locks import file_lock, try_lock_file


def test_waiting_for_a_lock_ends_with_an_error_that_says_how_long(tmp_path: Path) -> None:
    path, clock = tmp_path / "lock", ManualClock()
    with file_lock(path), pytest.raises(StorageError, match=r"lock: another process has held this lock for 5 s"):  # noqa: SIM117
        with file_lock(path, timeout=5, clock=clock, sleep=clock.sleep):
            pytest.fail("two are inside")
    assert clock.now == pytest.approx(5, abs=0.2)


def test_the_next_one_goes_in_when_the_holder_leaves(tmp_path: Path) -> None:
    path, clock = tmp_path / "lock", ManualClock()
    first = file_lock(path)
    first.__enter__()

    def leave(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.now >= 1:
            first.__exit__(None, None, None)

    with file_lock(path, timeout=5, clock=clock, sleep=leave):
        assert clock.now == pytest.approx(1, abs=0.2)
    assert not path.exists()


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_taken_on_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    real, calls = fcntl.flock, []

    def removed_first(descriptor: int, operation: int) -> None:
        if not calls:
            path.unlink()
        calls.append(descriptor)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    descriptor = try_lock_file(path)
    assert descriptor is not None
    assert len(calls) == 2
    assert os.path.samestat(os.fstat(descriptor), path.stat())
    os.close(descriptor)


def test_without_locks_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_here(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "flock", none_here)
    with pytest.raises(LocksNotSupported):
        try_lock_file(tmp_path / "lock")
    with file_lock(tmp_path / "lock"), file_lock(tmp_path / "lock"):
        pass


@pytest.mark.parametrize(("umask", "mode"), [(0o002, 0o664), (0o022, 0o644)])
def test_lock_file_of_a_killed_holder_follows_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        descriptor = try_lock_file(tmp_path / "lock")
    finally:
        os.umask(before)
    assert descriptor is not None
    os.close(descriptor)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == mode
