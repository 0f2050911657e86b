"""Checkpoints as transformers' Trainer leaves them, file by file, without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from checkpoint_files import checkpoint_files

from trainwright.checkpoints import pin

WriteCheckpoint = Callable[..., Path]


@pytest.fixture(autouse=True)
def without_pause() -> Iterator[None]:
    """A checkpoint that was just written is exported at once. `test_quiet.py` has its own times."""
    with mock.patch.object(pin, "QUIET_SECONDS", 0.0):
        yield


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A training output folder."""
    return tmp_path / "output"


@pytest.fixture
def write_checkpoint(output: Path) -> WriteCheckpoint:
    """`write_checkpoint(step, weights=b"...", **files)` in `output`; a file that is None is left out."""

    def write(step: int, weights: bytes = b"weights", **files: bytes | None) -> Path:
        folder = output / f"checkpoint-{step}"
        for name, content in {**checkpoint_files(step, weights), **files}.items():
            if content is not None:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
        return folder

    return write
