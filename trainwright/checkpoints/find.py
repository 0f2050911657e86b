"""Finds the checkpoints in a training output folder, and distinguishes complete ones from those still being written."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

from trainwright.checkpoints.errors import NoCheckpoint
from trainwright.checkpoints.hf_trainer import incomplete_reason, step_of
from trainwright.storage.plain_files import files_below
from trainwright.storage.transfer import disk_errors

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder. `incomplete` is the reason why it is incomplete, or empty."""

    path: Path
    step: int
    incomplete: str = ""


def find_checkpoints(folder: Path) -> list[Checkpoint]:
    """Return all checkpoint folders directly below `folder`, by step, oldest first. A missing folder has none.

    Raises StorageError if the folder cannot be read.
    """
    with disk_errors(folder):
        if not folder.is_dir():
            return []
        found = [(step, path) for path in folder.iterdir() if (step := step_of(path)) is not None and _is_folder(path)]
        return [Checkpoint(path, step, incomplete_reason(path) or "") for step, path in sorted(found)]


def latest_checkpoint(folder: Path, *, quiet_seconds: float = 0.0) -> Checkpoint:
    """Return the newest complete checkpoint below `folder`.

    With `quiet_seconds` its files must not change for that time; use it while training is running.
    Raises NoCheckpoint, which lists the incomplete checkpoints with reasons, StorageError.
    """
    candidates = find_checkpoints(folder)
    for candidate in reversed(candidates):
        if not candidate.incomplete and (not quiet_seconds or _is_quiet(candidate, quiet_seconds)):
            return candidate
        log.info("checkpoint skipped path=%s reason=%s", candidate.path, candidate.incomplete or "still changing")
    seen = "; ".join(f"{c.path.name}: {c.incomplete or 'still changing'}" for c in candidates)
    raise NoCheckpoint(f"no complete checkpoint in {folder}" + (f" ({seen})" if seen else ""))


def fingerprint(folder: Path) -> list[tuple[str, int, int]]:
    """Return names, sizes and times of all files; empty if the folder is removed meanwhile."""
    try:
        return [(path.as_posix(), (stat := (folder / path).stat()).st_size, stat.st_mtime_ns) for path in files_below(folder)]
    except FileNotFoundError:
        return []


def _is_folder(path: Path) -> bool:
    """A link is not a checkpoint: it may lead to a folder that nobody meant to export."""
    if path.is_symlink():
        log.warning("a link is not read as a checkpoint path=%s", path)
        return False
    return path.is_dir()


def _is_quiet(checkpoint: Checkpoint, seconds: float) -> bool:
    before = fingerprint(checkpoint.path)
    time.sleep(seconds)
    return before == fingerprint(checkpoint.path) and not incomplete_reason(checkpoint.path)
