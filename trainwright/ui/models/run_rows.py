"""The runs of a workspace, newest first, from the records in their folders. A run without a valid record is listed, too."""

from __future__ import annotations

import heapq
import os
from pathlib import Path
from typing import NamedTuple

from trainwright.api.times import parse_time
from trainwright.storage.transfer import disk_errors
from trainwright.ui.call import Json
from trainwright.ui.models.foreign_json import shown_json, shown_text
from trainwright.workspace.errors import WorkspaceError
from trainwright.workspace.layout import RUNS, run_name
from trainwright.workspace.run_record import DATASET_REPORTS, RunRecord, read_run

PAGE = 50
_MAX_RUNS = 20_000


class _Found(NamedTuple):
    updated: float
    name: str
    record: RunRecord | None


def list_runs(workspace: Path, after: str) -> Json:
    """Return a page of the runs of a workspace; `after` is the `next` of the page before. Raises StorageError."""
    names, is_cut = _names(workspace)
    found = [_read(workspace, name) for name in names]
    wanted = found
    if after:
        marker = next((each for each in found if each.name == after), None)
        wanted = [each for each in found if marker is None or (each.updated, each.name) < (marker.updated, marker.name)]
    page = heapq.nlargest(PAGE, wanted, key=lambda each: (each.updated, each.name))
    rows = [run_row(workspace, each.name, each.record) for each in page]
    return {"runs": rows, "total": len(found), "cut": is_cut, "next": page[-1].name if len(wanted) > PAGE else ""}


def run_row(workspace: Path, name: str, record: RunRecord | None) -> Json:
    """Return a run as a row of the list."""
    row: Json = {"name": shown_text(name, 300), "reports": _reports(workspace / RUNS / name)}
    if record is None:
        return {**row, "state": "unknown", "problem": "its folder has no valid run.json"}
    return {
        **row,
        "state": "ended" if record.ended is not None else "active",
        "run": shown_text(record.run, 300),
        "owner": shown_text(record.owner, 300),
        "started": record.started,
        "updated": record.updated,
        "ended": record.ended or "",
        "dataset": shown_text(record.dataset, 200),
        "model": shown_text(record.model, 200),
        "exported": shown_text(record.exported),
        "earlier": {name: [shown_text(each, 500) for each in values] for name, values in record.earlier.items()},
        "inputs": shown_json(record.inputs),
        "problem": "",
    }


def _names(workspace: Path) -> tuple[list[str], bool]:
    """Return the names of run folders, and whether there are more. Links and hidden folders are left out."""
    found: list[str] = []
    with disk_errors(workspace / RUNS), os.scandir(workspace / RUNS) as entries:
        for entry in entries:
            if len(found) == _MAX_RUNS:
                return found, True
            if entry.is_dir(follow_symlinks=False) and _is_run_name(entry.name):
                found.append(entry.name)
    return found, False


def _is_run_name(name: str) -> bool:
    try:
        return run_name(name) == name
    except WorkspaceError:
        return False


def _read(workspace: Path, name: str) -> _Found:
    record = read_run(workspace / RUNS / name)
    return _Found(parse_time(record.updated).timestamp() if record is not None else 0.0, name, record)


def _reports(folder: Path) -> list[str]:
    return [name for name in DATASET_REPORTS if name.endswith(".md") and (folder / name).is_file()]
