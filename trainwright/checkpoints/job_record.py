"""Records which jobs have written to an output folder, so that an export can reject checkpoints of a different job.

The file is in the folder itself, so that it stays with it when the folder is archived.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwright.api.names import RESUME_JOB_VARIABLE
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import disk_errors, write_bytes

JOBS = ".trainwright-jobs.json"
log = logging.getLogger(__name__)
_MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Writer:
    """A job that writes to an output folder: the name of its TrainJob, and the UID of its JobSet if known."""

    name: str
    uid: str = ""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Writer | None:
        """Return the job named by a pod's variables, or None if they name none."""
        name = environ.get("TRAINJOB_NAME", "")
        return cls(name, environ.get(RESUME_JOB_VARIABLE, "")) if name else None


def record_writer(output: Path, writer: Writer) -> None:
    """Move or append a job to the end of the list. Raises StorageError."""
    before = recorded_writers(output) or []
    after = [*(each for each in before if each != writer), writer]
    if after != before:
        write_bytes(output / JOBS, json.dumps([asdict(each) for each in after], indent=1).encode() + b"\n")


def recorded_writers(output: Path) -> list[Writer] | None:
    """Return the jobs that have written to `output`, newest last, or None without a record. Raises StorageError."""
    path = output / JOBS
    with disk_errors(path):
        try:
            content = read_plain(path, _MAX_BYTES, output)
        except FileNotFoundError:
            return None
    try:
        entries: Any = json.loads(content)
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, list):
        log.warning("the record of writing jobs is invalid and is ignored path=%s", path)
        return None
    return [Writer(name, str(entry.get("uid") or "")) for entry in entries if (name := _name(entry))]


def _name(entry: Any) -> str:
    return entry["name"] if isinstance(entry, dict) and isinstance(entry.get("name"), str) else ""
