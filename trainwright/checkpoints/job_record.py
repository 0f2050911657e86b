"""Records which jobs have written to an output folder, so that an export can reject checkpoints of a different job.

The file is in the folder itself, so that it stays with it when the folder is archived. It also records how many ranks a job has, and
which checkpoints were there before it: these were written by other jobs, perhaps with another number of ranks.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.api.names import LOADS_BEST_VARIABLE, LOSS_ON_VARIABLE, RESUME_JOB_VARIABLE
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import disk_errors, write_bytes

JOBS = ".trainwright-jobs.json"
log = logging.getLogger(__name__)
_MAX_BYTES = 16 * 1024 * 1024
_MAX_WORLD_SIZE = 1_000_000
_MAX_DIGITS = 6


@dataclass(frozen=True)
class Writer:
    """A job that writes to an output folder: the name of its TrainJob, and the UID of its JobSet if known.

    `world_size` is its number of ranks (processes), if the variables of its pods say it. `loads_best`: it ends with its best
    checkpoint, not the last. `loss_on` is what it learns of conversations, if that was set.
    """

    name: str
    uid: str = ""
    world_size: int | None = None
    loads_best: bool = False
    loss_on: str = ""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Writer | None:
        """Return the job named by a pod's variables, or None if they name none."""
        name = environ.get("TRAINJOB_NAME", "")
        if not name:  # not a pod of a job, as a training by hand
            return None
        loads_best, loss_on = environ.get(LOADS_BEST_VARIABLE, "") == "true", environ.get(LOSS_ON_VARIABLE, "")
        return cls(name, environ.get(RESUME_JOB_VARIABLE, ""), _world_size(environ), loads_best, loss_on)


def record_writer(output: Path, writer: Writer, earlier: Sequence[str] | None = None) -> None:
    """Move or append a job to the end of the list. Raises StorageError.

    `earlier` are the names of the checkpoint folders that other jobs have completed; by default all folders in `output`.
    A job that is last already stays as it is: its restarted pods find checkpoints of its own.
    """
    entries = _entries(output) or []
    if entries and _writer(entries[-1]) == writer:  # a restarted pod: what it finds is its own
        return
    kept = [entry for entry in entries if (found := _writer(entry)) and (found.name, found.uid) != (writer.name, writer.uid)]
    added: dict[str, object] = {"name": writer.name, "uid": writer.uid}
    if writer.loads_best:
        added["loads_best"] = True
    if writer.loss_on:
        added["loss_on"] = writer.loss_on
    if writer.world_size is not None:
        if earlier is None:
            with disk_errors(output):
                earlier = sorted(path.name for path in output.iterdir() if path.is_dir()) if output.is_dir() else []
        added |= {"world_size": writer.world_size, "earlier": list(earlier)}
    _write(output, [*kept, added])


def record_earlier(output: Path, name: str) -> None:
    """Record that the job that is last in the list did not write the checkpoint folder `name`. Raises StorageError."""
    entries = _entries(output) or []
    if entries and _world_size_of(entries[-1]) is not None and name not in _earlier(entries[-1]):
        _write(output, [*entries[:-1], {**entries[-1], "earlier": [*_earlier(entries[-1]), name]}])


def recorded_writers(output: Path) -> list[Writer] | None:
    """Return the jobs that have written to `output`, newest last, or None without a record. Raises StorageError."""
    entries = _entries(output)
    return None if entries is None else [writer for entry in entries if (writer := _writer(entry)) is not None]


def trained_world_size(output: Path, name: str) -> int | None:
    """Return the number of ranks of the job that wrote the checkpoint folder `name`, or None if it is not known for certain.

    That is the newest job before which the checkpoint was not there. An empty name means the output folder itself, which is
    never there before. Raises StorageError.
    """
    author = trained_by(output, name)
    return None if author is None else author.world_size


def trained_by(output: Path, name: str) -> Writer | None:
    """Return the job that wrote the checkpoint folder `name`, or None if it is not known for certain: see `trained_world_size`.

    Raises StorageError.
    """
    try:
        entries = _entries(output) or []
    except UnsafeFile as error:  # the number of ranks then counts as unknown
        log.warning("the record of writing jobs is not read: %s", error)
        return None
    for entry in reversed(entries):
        if _world_size_of(entry) is None:  # it may have written the folder, and does not say with how many ranks
            return None
        if name not in _earlier(entry):  # the newest job before which it was not there
            return _writer(entry)
    return None


def _entries(output: Path) -> list[Any] | None:
    path = output / JOBS
    with disk_errors(path):
        try:
            content = read_plain(path, _MAX_BYTES, output)
        except FileNotFoundError:  # no job has begun
            return None
    try:
        entries: Any = json.loads(content)
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, list):
        log.warning("the record of writing jobs is invalid and is ignored path=%s", path)
        return None
    return entries


def _write(output: Path, entries: list[Any]) -> None:
    write_bytes(output / JOBS, json.dumps(entries, indent=1).encode() + b"\n")


def _writer(entry: Any) -> Writer | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
        return None
    loads_best, loss_on = entry.get("loads_best") is True, str(entry.get("loss_on") or "")
    return Writer(entry["name"], str(entry.get("uid") or ""), _world_size_of(entry), loads_best, loss_on)


def _world_size_of(entry: Any) -> int | None:
    found = entry.get("world_size") if isinstance(entry, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 < found <= _MAX_WORLD_SIZE else None


def _earlier(entry: Any) -> list[str]:
    found = entry.get("earlier") if isinstance(entry, dict) else None
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _world_size(environ: Mapping[str, str]) -> int | None:
    """Return nodes times processes per node of torchrun, or None if either is missing, a range, or found out only there (`gpu`)."""
    counts = [environ.get(name, "") for name in ("PET_NNODES", "PET_NPROC_PER_NODE")]
    # `gpu` and ranges are resolved by torchrun only.
    if not all(count.isascii() and count.isdigit() and len(count) <= _MAX_DIGITS for count in counts):
        return None
    world_size = int(counts[0]) * int(counts[1])
    return world_size if 0 < world_size <= _MAX_WORLD_SIZE else None
