"""A checkpoint that still changes is refused, one that rotation has removed is not, and an old one is not waited for."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_files import torch_file

from trainwright.checkpoints import find
from trainwright.checkpoints.catalog import read_catalog
from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.pin import QuietCheck
from trainwright.checkpoints.publish import ExportOptions, export_checkpoint
from trainwright.storage import open_store
from trainwright.storage.uri import StorageUri


class Clock:
    """Time that passes only while somebody waits; `meanwhile` happens then."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None):
        self.now, self._meanwhile = 0.0, meanwhile

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._meanwhile()


def late_rank(folder: Path) -> None:
    (folder / "rng_state_1.pth").write_bytes(b"late")


@pytest.mark.parametrize("writes", [late_rank, lambda folder: (folder / "optimizer.pt").write_bytes(b"longer than before")])
def test_late_writes_of_another_rank_are_detected(
    write_checkpoint: Callable[..., Path], writes: Callable[[Path], object]
) -> None:
    folder = write_checkpoint(5)
    clock = Clock(lambda: writes(folder))
    check = QuietCheck(folder, 2.0, clock=clock, sleep=clock.sleep)
    words = r"checkpoint-5 is still being written \((optimizer\.pt|rng_state_1\.pth) changed\)"
    with pytest.raises(CheckpointError, match=words):
        check.settle(are_ranks_known=True)
    with pytest.raises(CheckpointError, match=words):
        check.require()


def test_only_the_rest_of_the_time_is_waited_for(write_checkpoint: Callable[..., Path]) -> None:
    clock = Clock()
    check = QuietCheck(write_checkpoint(5), 2.0, clock=clock, sleep=clock.sleep)
    clock.now = 1.5
    check.settle(are_ranks_known=False)
    assert clock.now == pytest.approx(2.0)
    check.settle(are_ranks_known=False)
    check.require()
    assert clock.now == pytest.approx(2.0)


def test_an_old_checkpoint_is_not_waited_for(write_checkpoint: Callable[..., Path]) -> None:
    folder = write_checkpoint(5)
    for path in folder.rglob("*"):
        os.utime(path, (1e9, 1e9))
    clock = Clock()
    QuietCheck(folder, 2.0, clock=clock, sleep=clock.sleep).settle(are_ranks_known=False)
    assert clock.now == 0.0


def test_checkpoint_removed_while_settling_needs_known_ranks(
    write_checkpoint: Callable[..., Path],
) -> None:
    folder = write_checkpoint(5)
    clock = Clock(lambda: shutil.rmtree(folder, ignore_errors=True))
    check = QuietCheck(folder, 2.0, clock=clock, sleep=clock.sleep)
    check.settle(are_ranks_known=True)
    check.require()
    with pytest.raises(CheckpointError, match="was removed before it had been unchanged long enough"):
        check.settle(are_ranks_known=False)


@pytest.mark.medium
@pytest.mark.parametrize("removed_after", [0.5, 1.5], ids=["removed while waiting", "removed during the upload"])
def test_a_state_that_a_rank_adds_after_the_pin_is_missed_by_no_export_even_if_rotation_removes_the_folder(
    removed_after: float, output: Path, write_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """Nothing says that there are three ranks."""
    content = torch_file(b"rng")
    folder = write_checkpoint(5, **{"rng_state.pth": None, "rng_state_0.pth": content, "rng_state_1.pth": content})
    target = str(StorageUri.from_path(tmp_path / "exports"))
    timers: list[threading.Timer] = []
    removed = threading.Event()

    def remove() -> None:
        shutil.rmtree(folder)
        removed.set()

    def begin(_total: int) -> Callable[[int], None]:
        timers.append(threading.Timer(0.2, (folder / "rng_state_2.pth").write_bytes, (content,)))
        timers.append(threading.Timer(removed_after, remove))
        for timer in timers:
            timer.start()
        return lambda _count: None if removed_after < 1.0 else (removed.wait(10), None)[1]

    with pytest.raises(CheckpointError, match=r"still being written|was removed"):
        export_checkpoint(output, target, source="run", options=ExportOptions(quiet_seconds=1.0), start_progress=begin)
    for timer in timers:
        timer.join()
    assert not read_catalog(open_store(target)).exports


def test_an_export_of_a_checkpoint_that_a_rank_is_still_writing_publishes_nothing_and_the_next_one_is_accepted(
    output: Path, tmp_path: Path, write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, target = write_checkpoint(5), tmp_path / "exports"
    options, uri = ExportOptions(quiet_seconds=0.05), str(StorageUri.from_path(target))

    def writes(_done: int) -> None:
        if not (folder / "late.txt").exists():
            (folder / "late.txt").write_bytes(b"late")

    with pytest.raises(CheckpointError, match=r"still being written \(late\.txt changed\)"):
        export_checkpoint(output, uri, source="run", options=options, start_progress=lambda _total: writes)
    assert not (target / "checkpoint-5" / "manifest.json").exists()
    exported = export_checkpoint(output, uri, source="run", options=options)
    assert "late.txt" in {file.path for file in exported.manifest.files}


def test_a_fingerprint_names_every_file(write_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    names = [name for name, _, _ in find.fingerprint(write_checkpoint(5))]
    assert names == sorted(names)
    assert "nested/ü.txt" in names
    assert find.fingerprint(tmp_path / "none") == []
