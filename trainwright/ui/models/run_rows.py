"""The runs of a workspace, newest first, from the records in their folders. A run without a valid record is listed, too."""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from trainwright.api.objects import Obj
from trainwright.api.times import parse_time
from trainwright.checkpoints.history.metrics_file import METRICS
from trainwright.storage.transfer import disk_errors
from trainwright.text.foreign_texts import one_line
from trainwright.ui.call import Json
from trainwright.ui.jobs.creator import Creator, creator_of
from trainwright.ui.models.evaluations import newest_evaluation
from trainwright.ui.models.foreign_json import shown_json, shown_text
from trainwright.ui.models.job_run import RunJobs
from trainwright.ui.models.run_state import Evaluated, state_of
from trainwright.ui.models.workspaces import WorkspaceFolder
from trainwright.workspace.layout import OUTPUT, RUNS, WorkspaceError, run_name
from trainwright.workspace.run_record import DATASET_REPORTS, RunRecord, read_run

PAGE = 50
_MAX_RUNS = 20_000


class _Found(NamedTuple):
    updated: float
    name: str
    record: RunRecord | None


def list_runs(workspace: WorkspaceFolder, after: str, jobs: RunJobs | None) -> Json:
    """Return a page of the runs of a workspace; `after` is the `next` of the page before. Raises StorageError.

    `jobs` is None if TrainJobs cannot be listed.
    """
    names, is_cut = _names(workspace.path)
    found = [_read(workspace.path, name) for name in names]
    wanted = found
    if after:
        marker = next((each for each in found if each.name == after), None)
        wanted = [each for each in found if marker is None or (each.updated, each.name) < (marker.updated, marker.name)]
    page = heapq.nlargest(PAGE, wanted, key=lambda each: (each.updated, each.name))
    rows = [run_row(workspace, each.name, each.record, jobs) for each in page]
    return {"runs": rows, "total": len(found), "cut": is_cut, "next": page[-1].name if len(wanted) > PAGE else ""}


def run_row(workspace: WorkspaceFolder, name: str, record: RunRecord | None, jobs: RunJobs | None) -> Json:
    """Return a run as a row of the list. `evaluation` is the newest one, None without one."""
    folder = workspace.path / RUNS / name
    evaluation = newest_evaluation(workspace.path, name)
    row: Json = {
        "name": shown_text(name, 300),
        "reports": _reports(folder),
        "evaluation": evaluation.shown if evaluation is not None else None,
    }
    if record is None:
        return {**row, "state": "unknown", "reason": "", "creator": _NOBODY, "problem": "its folder has no valid run.json"}
    own = jobs.of(workspace, name, record) if jobs is not None else None
    evaluated = Evaluated(evaluation.at, evaluation.shown["loss"]["after"] is not None) if evaluation is not None else None
    state = state_of(record, own, evaluated, has_output=is_training(folder), now=time.time())
    return {
        **row,
        "state": state.state,
        "reason": shown_text(one_line(state.reason), 500),
        "creator": _creator(record, own or ()),
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


def is_training(place: Path) -> bool:
    """Whether a training has written to this folder. Links do not count."""
    output, metrics = place / OUTPUT, place / METRICS
    return (output.is_dir() and not output.is_symlink()) or (metrics.is_file() and not metrics.is_symlink())


_NOBODY = Creator(kind="", name="", run="", task="", path="")


def _creator(record: RunRecord, jobs: Iterable[Obj]) -> Creator:
    """Return the DAG run or pipeline run of a run: by its TrainJobs, else by its record, which does not name pipelines."""
    found = next((each for each in map(creator_of, jobs) if each["kind"] in ("airflow", "kfp")), None)
    if found is None:
        kind, _, name = record.owner.partition("/")
        if kind == "airflow":
            found = {**_NOBODY, "kind": kind, "name": name, "run": record.run.removeprefix(f"{name}/")}
        elif kind == "kfp":
            found = {**_NOBODY, "kind": kind, "name": name or "pipeline", "run": record.run}
        else:
            return _NOBODY
    name, run = shown_text(found["name"], 300), shown_text(found["run"], 300)
    return Creator(kind=found["kind"], name=name, run=run, task="", path=shown_text(found["path"]))


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
