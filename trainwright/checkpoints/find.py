"""Finding the checkpoints below a training output folder, and telling whole ones from those that are still being written."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

from trainwright.checkpoints.errors import NoCheckpoint
from trainwright.checkpoints.hf_trainer import incomplete_because, step_of
from trainwright.storage.digests import files_below
from trainwright.storage.transfer import disk_errors

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder; `incomplete` says why it is not whole, and is empty when it is."""

    path: Path
    step: int
    incomplete: str = ""


def find_checkpoints(folder: Path) -> list[Checkpoint]:
    """All checkpoint folders directly below `folder`, by step, oldest first. A folder that does not exist has none.

    Raises StorageError for a folder that cannot be read.
    """
    with disk_errors(folder):
        if not folder.is_dir():
            return []
        found = [(step, path) for path in folder.iterdir() if (step := step_of(path)) is not None and path.is_dir()]
        return [Checkpoint(path, step, incomplete_because(path) or "") for step, path in sorted(found)]


def latest_checkpoint(folder: Path, *, quiet_seconds: float = 0.0) -> Checkpoint:
    """The newest whole checkpoint below `folder`.

    With `quiet_seconds` its files must not change for that long: for a training that still runs.
    Raises NoCheckpoint, naming what was found and why it is not whole; StorageError.
    """
    candidates = find_checkpoints(folder)
    for candidate in reversed(candidates):
        if not candidate.incomplete and (not quiet_seconds or _is_quiet(candidate, quiet_seconds)):
            return candidate
        log.info("checkpoint passed over path=%s reason=%s", candidate.path, candidate.incomplete or "still changing")
    seen = "; ".join(f"{c.path.name}: {c.incomplete or 'still changing'}" for c in candidates)
    raise NoCheckpoint(f"no whole checkpoint in {folder}" + (f" ({seen})" if seen else ""))


def fingerprint(folder: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times of all files; empty for a folder that goes while it is looked at."""
    try:
        return [(path.as_posix(), (stat := (folder / path).stat()).st_size, stat.st_mtime_ns) for path in files_below(folder)]
    except FileNotFoundError:
        return []


def _is_quiet(checkpoint: Checkpoint, seconds: float) -> bool:
    before = fingerprint(checkpoint.path)
    time.sleep(seconds)
    return before == fingerprint(checkpoint.path) and not incomplete_because(checkpoint.path)
