"""Says in one line what a training starts from: nothing, a checkpoint of its own run, or an export, and whose.

Small records in the output folder keep which checkpoint folders were restored from an export, which look like own ones after a
restart, what each job began with, for the model card, and when: how much training a checkpoint saves is the time that earlier
starts took to get there. A record that others have broken counts as none.
"""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import Any

from trainwright.checkpoints.formats.whole_files import STATE
from trainwright.checkpoints.job_record import Writer, trained_by
from trainwright.checkpoints.manifest import OWNER, Manifest
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.text.text_input import is_number

STARTS = ".trainwright-starts.json"
STARTS_KEY = "starts"
"""Key of an export's metadata: what each job began with that has written to its folder, oldest first."""
_MAX_STARTS = 1000
BEGINNINGS = ".trainwright-beginnings.json"
_MAX_BEGINNINGS = 1000
Beginning = tuple[float, float]
"""When a training began, in seconds since the epoch, and the seconds of training that its checkpoint had saved."""
_MAX_BYTES = 1024 * 1024
log = logging.getLogger(__name__)


def describe_export_source(uri: str, manifest: Manifest) -> str:
    """Return an export with whose it is: its run and TrainJob, and the owner of the run if it is recorded."""
    owner = manifest.metadata.get(OWNER)
    by = f" by {owner}" if isinstance(owner, str) and owner else ""
    return f"the export {uri} of {manifest.source}{by}"


def describe_start(output: Path, point: Path | None, writer: Writer | None) -> str:
    """Return what a job starts from that found the checkpoint `point` in `output`, or nothing. Raises StorageError."""
    if point is None:
        return "nothing: there is no checkpoint of this run"
    if (restored := _read(output)["restored"].get(point.name)) is not None:
        return f"{point.name}, restored from {restored}"
    author = trained_by(output, point.name)
    if author is None:
        return f"{point.name} of its own run"
    if writer is not None and (author.name, author.uid) == (writer.name, writer.uid):
        return f"{point.name} of its own, after a restart"
    return f"{point.name} of its own run, of the TrainJob {author.name}"


def is_restored(output: Path, name: str) -> bool:
    """Whether the checkpoint folder `name` was restored from an export. Raises StorageError."""
    return name in _read(output)["restored"]


def record_restored(output: Path, name: str, text: str) -> None:
    """Record that the checkpoint folder `name` was restored from an export, as `describe_export_source` says. Raises StorageError."""
    found = _read(output)
    _write(output, {**found, "restored": {**found["restored"], name: text}})


def record_start(output: Path, writer: Writer, text: str) -> str:
    """Record what the job started from, unless it did so before; returns its first start. Raises StorageError."""
    found = _read(output)
    key = writer.uid or writer.name
    if (first := dict(found["starts"]).get(key)) is not None:  # a restarted pod: the job has begun before
        return str(first)
    _write(output, {**found, "starts": [*found["starts"], [key, text]][-_MAX_STARTS:]})
    return text


def recorded_starts(output: Path) -> list[str]:
    """Return what each job began with that has written to `output`, oldest first, as far as it is recorded. Raises StorageError."""
    return [text for _, text in _read(output)["starts"]]


def _read(output: Path) -> dict[str, Any]:
    """Return the record; what is invalid counts as empty, since it only describes."""
    found = read_description(output, STARTS)
    found = found if isinstance(found, dict) else {}
    restored, starts = found.get("restored"), found.get("starts")
    return {
        "restored": restored if isinstance(restored, dict) else {},
        "starts": [entry for entry in starts if _is_start(entry)] if isinstance(starts, list) else [],
    }


def _is_start(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and all(isinstance(text, str) for text in entry)


def _write(output: Path, found: dict[str, Any]) -> None:
    write_bytes(output / STARTS, json.dumps(found, indent=1).encode() + b"\n")


def begin_training(output: Path, point: Path | None, now: float, *, is_restored: bool = False) -> float:
    """Record that a training begins now from the checkpoint `point`. Returns the seconds of training that it saves.

    That is a lower bound: 0 for a checkpoint that was restored from an export, whose training is not recorded here. Raises
    StorageError.
    """
    found = read_description(output, BEGINNINGS)  # what is invalid counts as empty, since it only describes
    known = [(float(entry[0]), float(entry[1])) for entry in found if _is_beginning(entry)] if isinstance(found, list) else []
    saved = 0.0 if point is None or is_restored else _seconds_to(point, known)
    kept = [*known, (now, saved)][-_MAX_BEGINNINGS:]
    write_bytes(output / BEGINNINGS, json.dumps(kept).encode() + b"\n")
    return saved


def _seconds_to(point: Path, known: list[Beginning]) -> float:
    """The time from the last beginning before the checkpoint was complete, and what that one had saved."""
    with disk_errors(point):
        complete = (point / STATE).stat().st_mtime
    before = [beginning for beginning in known if beginning[0] <= complete]
    if not before:  # no beginning is recorded that led to it
        return 0.0
    began, saved = before[-1]
    return complete - began + saved


def _is_beginning(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and all(is_number(value) and value >= 0 for value in entry)


def read_description(output: Path, name: str) -> Any:
    """Return the JSON value in a record, or None if it is missing or invalid. Raises StorageError."""
    path = output / name
    try:
        with disk_errors(path), contextlib.suppress(FileNotFoundError):
            return json.loads(read_plain(path, _MAX_BYTES, output))
    except (ValueError, RecursionError, UnsafeFile) as error:  # records only describe
        log.warning("a record is ignored path=%s error=%s", path, error)
    return None
