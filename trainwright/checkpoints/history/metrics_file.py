"""The metrics of a training as JSON lines in the run's folder, which whoever waits for a training writes.

A line is an object with numbers and `step`. A training that reports no steps has `report` instead, the number of the report.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainwright.storage.errors import StorageError, UnsafeFile
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import write_bytes
from trainwright.text.text_input import is_number
from trainwright.workspace.layout import WorkspaceError, step_path

METRICS = "metrics.jsonl"
STEP, REPORT = "step", "report"
_MAX_METRICS_BYTES = 64 * 1024 * 1024
log = logging.getLogger(__name__)


def keep_metrics(workspace: Path, folder: str, entries: Iterable[Mapping[str, Any]], count: str = STEP) -> None:
    """Write the entries of a training's history to the folder of its run, `runs/NAME` in a mounted workspace.

    `count` is what the `step` of the entries is: STEP, or REPORT. Earlier entries are kept up to the first step of these: a job that
    resumes continues there. Does nothing without entries, or if the folder is not there; a failure is only logged, since the
    training has succeeded.
    """
    lines = [{count: entry[STEP], **{name: entry[name] for name in entry if name != STEP}} for entry in entries]
    try:
        place = step_path(workspace, folder)
        if not lines or not place.is_dir():
            return
        first = min(line[count] for line in lines)
        lines = [line for line in read_metrics(place) if line.get(count, math.inf) < first] + lines
        write_bytes(place / METRICS, "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode())
    except (OSError, StorageError, WorkspaceError, ValueError) as error:
        log.warning("event=metrics_not_kept folder=%s error=%s", folder, error)


def read_metrics(place: Path) -> list[dict[str, Any]]:
    """Return the entries in the folder of a run, without lines that are invalid; none if there is no such file. Raises OSError."""
    try:
        content = read_plain(place / METRICS, _MAX_METRICS_BYTES, place)
    except FileNotFoundError:
        return []
    except UnsafeFile as error:
        log.warning("event=metrics_not_read path=%s error=%s", place / METRICS, error)
        return []
    return [entry for line in content.splitlines() if (entry := _entry(line)) is not None]


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    found = {name: value for name, value in entry.items() if is_number(value)} if isinstance(entry, dict) else {}
    return found if any(isinstance(found.get(name), int) for name in (STEP, REPORT)) else None
