"""Which jobs have written into an output folder: so that an export can refuse checkpoints of another job than the one it names.

The file lies in the folder itself, so that it goes with it when it is moved aside.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwright.api.names import RESUME_JOB_VARIABLE
from trainwright.storage.transfer import disk_errors, write_bytes

JOBS = ".trainwright-jobs.json"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Writer:
    """A job that writes into an output: the name of its TrainJob, and the UID of its JobSet where that is known."""

    name: str
    uid: str = ""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Writer | None:
        """From the variables of its pods; None where they do not name the job."""
        name = environ.get("TRAINJOB_NAME", "")
        return cls(name, environ.get(RESUME_JOB_VARIABLE, "")) if name else None


def record_writer(output: Path, writer: Writer) -> None:
    """Put a job at the end of the list, in which each stands once. Raises StorageError."""
    before = recorded_writers(output) or []
    after = [*(each for each in before if each != writer), writer]
    if after != before:
        write_bytes(output / JOBS, json.dumps([asdict(each) for each in after], indent=1).encode() + b"\n")


def recorded_writers(output: Path) -> list[Writer] | None:
    """The jobs that have written into `output`, the newest last; None where nothing says it. Raises StorageError."""
    path = output / JOBS
    with disk_errors(path):
        if not path.is_file():
            return None
        content = path.read_bytes()
    try:
        entries: Any = json.loads(content)
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, list):
        log.warning("the record of the jobs that wrote here cannot be read and is ignored path=%s", path)
        return None
    return [Writer(name, str(entry.get("uid") or "")) for entry in entries if (name := _name(entry))]


def _name(entry: Any) -> str:
    return entry["name"] if isinstance(entry, dict) and isinstance(entry.get("name"), str) else ""
