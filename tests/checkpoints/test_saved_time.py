"""The time that a checkpoint saves is that of the trainings up to it, without what they lost and without pauses."""

from __future__ import annotations

import os
from pathlib import Path

from trainwright.checkpoints.training_start import BEGINNINGS, begin_training
from trainwright.jobs.state.usage import saved_hours, saved_text


def checkpoint(output: Path, step: int, written: float) -> Path:
    folder = output / f"checkpoint-{step}"
    folder.mkdir()
    (folder / "trainer_state.json").write_text("{}")
    os.utime(folder / "trainer_state.json", (written, written))
    return folder


def test_time_is_that_of_the_starts_up_to_the_checkpoint(tmp_path: Path) -> None:
    assert begin_training(tmp_path, None, 1000) == 0
    first = checkpoint(tmp_path, 10, 1600)  # 600 s; then 300 s are lost, and nothing runs for a day
    assert begin_training(tmp_path, first, 90_000) == 600
    second = checkpoint(tmp_path, 20, 90_400)
    assert begin_training(tmp_path, second, 91_000) == 1000
    assert begin_training(tmp_path, second, 92_000) == 1000  # it has not come any further


def test_checkpoint_from_elsewhere_saves_what_is_not_known(tmp_path: Path) -> None:
    old = checkpoint(tmp_path, 5, 500)
    assert begin_training(tmp_path, old, 1000) == 0
    restored = checkpoint(tmp_path, 6, 4000)
    assert begin_training(tmp_path, restored, 4100, is_restored=True) == 0
    assert begin_training(tmp_path, checkpoint(tmp_path, 7, 4300), 5000) == 200


def test_a_record_that_others_broke_counts_as_none(tmp_path: Path) -> None:
    for content in ("{", "{}", '[["a", 1], 3, [1], [true, 1], [1, NaN], [1, Infinity], [-1, 1]]', "[" * 100_000):
        (tmp_path / BEGINNINGS).write_text(content)
        assert begin_training(tmp_path, None, 1000) == 0


def test_hours_are_read_from_the_text_that_tells_them() -> None:
    assert saved_hours(f"checkpoint-40 of its own run{saved_text(4500)}") == 1.25
    assert saved_text(10) == ""
    for text in ("", "checkpoint-40 of its own", "x; saves 1.25 h of training; and more"):
        assert saved_hours(text) == 0
