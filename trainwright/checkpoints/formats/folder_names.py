"""Names of checkpoint folders that contain a step, such as `checkpoint-100`, `step_100` or `epoch_1`."""

from __future__ import annotations

import re
from pathlib import Path

_CHECKPOINT = re.compile(r"checkpoint-(0|[1-9][0-9]*)")
_NUMBERED = re.compile(r"(?:checkpoint|ckpt|global_step|step|epoch|iteration|iter)[-_]?([0-9]+)")


def checkpoint_step(folder: Path) -> int | None:
    """Return N of a folder named exactly `checkpoint-N` as by transformers' Trainer, or None."""
    match = _CHECKPOINT.fullmatch(folder.name)
    return int(match[1]) if match else None


def numbered_step(folder: Path) -> int | None:
    """Return N of a folder named `checkpoint-N`, `step-N`, `step_N`, `epoch_N`, `iter_N` or alike, or None."""
    match = _NUMBERED.fullmatch(folder.name)
    return int(match[1]) if match else None
