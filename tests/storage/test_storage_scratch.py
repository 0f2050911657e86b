"""A scratch folder outlives a full disk and a kill, but nothing else, and belongs to one at a time."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.storage.errors import NoSpace, StorageError
from trainwright.storage.scratch import scratch_folder

HOLDS = """
import sys
from pathlib import Path
from trainwright.storage.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1]), sys.argv[2]) as folder:
    (folder / "half").write_bytes(b"half")
    print("ready", flush=True)
    sys.stdin.read()
"""


def left(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir())


def test_scratch_folder_is_removed_after_success_and_permanent_failure(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / "target", "a") as folder:
        (folder / "file").write_bytes(b"1")
    assert left(tmp_path) == []
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), scratch_folder(tmp_path / "target", "a") as folder:  # noqa: PT012
            (folder / "file").write_bytes(b"1")
            raise error
        assert left(tmp_path) == []


@pytest.mark.parametrize("error", [StorageError, NoSpace])
def test_scratch_folder_is_reused_after_a_transient_failure(tmp_path: Path, error: type[Exception]) -> None:
    with pytest.raises(error), scratch_folder(tmp_path / "target", "a") as folder:  # noqa: PT012
        (folder / "file").write_bytes(b"1")
        raise error
    with scratch_folder(tmp_path / "target", "a") as folder:
        assert (folder / "file").read_bytes() == b"1"
    assert left(tmp_path) == []


def test_trouble_before_anything_was_done_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageError), scratch_folder(tmp_path / "target", "a"):
        raise StorageError
    assert left(tmp_path) == []


def test_scratch_folder_for_another_purpose_is_cleared(tmp_path: Path) -> None:
    for target in ("target", "other"):
        with pytest.raises(StorageError), scratch_folder(tmp_path / target, "a") as folder:  # noqa: PT012
            (folder / "file").write_bytes(b"1")
            raise StorageError
    with scratch_folder(tmp_path / "target", "b") as folder:
        assert not list(folder.iterdir())
    with scratch_folder(tmp_path / "other", "a") as folder:
        assert (folder / "file").read_bytes() == b"1"
    assert left(tmp_path) == []


def test_two_at_once_have_a_folder_each(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with scratch_folder(target, "a") as first:
        (first / "file").write_bytes(b"1")
        with scratch_folder(target, "a") as second, scratch_folder(target, "b") as third:
            assert len({first, second, third}) == 3
            assert not list(second.iterdir())
        assert (first / "file").exists()
    assert left(tmp_path) == []


def test_without_locks_everyone_has_a_folder_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_here(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none_here)
    with scratch_folder(tmp_path / "target", "a") as first, scratch_folder(tmp_path / "target", "a") as second:
        assert first != second


def test_a_target_name_may_be_as_long_as_names_can_be(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / ("ü" * 127), "a") as folder:
        assert folder.is_dir()


@pytest.mark.medium
def test_scratch_folder_of_a_killed_process_is_reused_or_cleared(tmp_path: Path) -> None:
    target = tmp_path / "target"
    for purpose, survives in (("a", True), ("b", False)):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDS, str(target), "a"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with scratch_folder(target, purpose) as folder:
            assert not (folder / "half").exists()  # its owner lives
        process.kill()
        process.communicate()
        with scratch_folder(target, purpose) as folder:
            assert (folder / "half").exists() == survives
        assert left(tmp_path) == []
