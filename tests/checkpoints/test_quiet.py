"""A checkpoint that still changes is refused, one that rotation has removed is not, and an old one is not waited for."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.checkpoints import ExportOptions, export_checkpoint, find
from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.quiet import QuietCheck
from trainwright.storage.uri import StorageUri


class Clock:
    """Time that passes only while somebody waits; `meanwhile` happens then."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None):
        self.now, self.slept, self._meanwhile = 0.0, 0.0, meanwhile

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self._meanwhile()


def late_rank(folder: Path) -> None:
    (folder / "rng_state_1.pth").write_bytes(b"late")


@pytest.mark.parametrize("writes", [late_rank, lambda folder: (folder / "optimizer.pt").write_bytes(b"longer than before")])
def test_what_another_rank_writes_meanwhile_is_noticed(
    write_checkpoint: Callable[..., Path], writes: Callable[[Path], object]
) -> None:
    folder = write_checkpoint(5)
    clock = Clock(lambda: writes(folder))
    check = QuietCheck(folder, 2.0, clock=clock, sleep=clock.sleep)
    with pytest.raises(
        CheckpointError, match=r"checkpoint-5 is still being written \((optimizer\.pt|rng_state_1\.pth) changed\)"
    ):
        check.require()
    assert clock.slept == 2.0


def test_only_the_rest_of_the_time_is_waited_for(write_checkpoint: Callable[..., Path]) -> None:
    clock = Clock()
    check = QuietCheck(write_checkpoint(5), 2.0, clock=clock, sleep=clock.sleep)
    clock.now = 1.5
    check.require()
    clock.now = 60.0
    check.require()
    assert clock.slept == 0.5


def test_an_old_checkpoint_is_not_waited_for(write_checkpoint: Callable[..., Path]) -> None:
    folder = write_checkpoint(5)
    for path in folder.rglob("*"):
        os.utime(path, (1e9, 1e9))
    clock = Clock()
    QuietCheck(folder, 2.0, clock=clock, sleep=clock.sleep).require()
    assert clock.slept == 0.0


def test_one_that_was_rotated_away_is_no_longer_written(write_checkpoint: Callable[..., Path]) -> None:
    folder = write_checkpoint(5)
    clock = Clock(lambda: shutil.rmtree(folder))
    QuietCheck(folder, 2.0, clock=clock, sleep=clock.sleep).require()


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
