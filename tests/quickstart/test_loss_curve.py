"""The loss curve is a PNG of some size, and says so when there is nothing to draw."""

import struct
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from trainwright.quickstart.loss_curve import draw_loss_curve


def test_a_picture_is_written(tmp_path: Path) -> None:
    history = [{"step": step, "loss": 4.0 / step} for step in range(5, 100, 5)]
    history += [{"step": 50, "eval_loss": 1.0}, {"step": 100, "train_runtime": 3.0, "train_loss": 1.0}]
    out = tmp_path / "new" / "loss.png"
    draw_loss_curve(history, out, before=5.0, after=0.5)
    picture = out.read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture[16:24]) == (1200, 675)


def test_close_levels_and_one_entry_can_be_drawn(tmp_path: Path) -> None:
    draw_loss_curve([{"step": 5, "loss": 1.0}], tmp_path / "loss.png", before=1.0, after=1.01)
    assert (tmp_path / "loss.png").stat().st_size > 1000


def test_a_history_without_losses_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no training loss"):
        draw_loss_curve([{"step": 1, "eval_loss": 1.0}], tmp_path / "loss.png", before=1.0, after=1.0)
    assert not list(tmp_path.iterdir())
