"""How much training a checkpoint saves: the time that earlier starts in the same output folder took to get there.

A record in the folder keeps when each start of a training began, and what it had saved itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainwright.checkpoints.hf_trainer import STATE
from trainwright.checkpoints.output_record import read_description
from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.text.text_input import is_number

BEGINNINGS = ".trainwright-beginnings.json"
_MAX_BEGINNINGS = 1000
Beginning = tuple[float, float]
"""When a training began, in seconds since the epoch, and the seconds of training that its checkpoint had saved."""


def begin_training(output: Path, point: Path | None, now: float, *, is_restored: bool = False) -> float:
    """Record that a training begins now from the checkpoint `point`. Returns the seconds of training that it saves.

    That is a lower bound: 0 for a checkpoint that was restored from an export, whose training is not recorded here. Raises
    StorageError.
    """
    known = _read(output)
    saved = 0.0 if point is None or is_restored else _seconds_to(point, known)
    kept = [*known, (now, saved)][-_MAX_BEGINNINGS:]
    write_bytes(output / BEGINNINGS, json.dumps(kept).encode() + b"\n")
    return saved


def _seconds_to(point: Path, known: list[Beginning]) -> float:
    """The time from the last beginning before the checkpoint was complete, and what that one had saved."""
    with disk_errors(point):
        complete = (point / STATE).stat().st_mtime
    before = [beginning for beginning in known if beginning[0] <= complete]
    if not before:
        return 0.0
    began, saved = before[-1]
    return complete - began + saved


def _read(output: Path) -> list[Beginning]:
    """Return the record; what is invalid counts as empty, since it only describes."""
    found = read_description(output, BEGINNINGS)
    return [(float(entry[0]), float(entry[1])) for entry in found if _is_beginning(entry)] if isinstance(found, list) else []


def _is_beginning(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and all(is_number(value) and value >= 0 for value in entry)
