"""The evaluations in a run's folder: the figures of each before and after training, by the export that was evaluated."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainwright.checkpoints.promotion import check_figures
from trainwright.evaluation.figures import loss_label, loss_name, stop_line
from trainwright.steps.evaluation_files import FOLDER, RESULT, SUMMARY, figures_of, short_digest
from trainwright.storage.errors import StorageError
from trainwright.ui.call import Json
from trainwright.ui.models.foreign_json import shown_figures, shown_json, shown_number, shown_text
from trainwright.ui.models.run_files import read_json_inside
from trainwright.ui.models.workspaces import WorkspaceFolder
from trainwright.workspace.errors import WorkspaceError
from trainwright.workspace.layout import RUNS, containing_run

_SHORT = re.compile(r"[0-9a-f]{12}")
_MAX = 50
_MAX_RUNS = 2_000


def list_evaluations(workspace: Path, run: str) -> list[Json]:
    """Return the evaluations of a run; one whose result cannot be read has a problem. Raises WorkspaceError for an invalid name."""
    return [_shown(workspace, run, name) for name in _folders(workspace / RUNS / containing_run(f"{RUNS}/{run}") / FOLDER)]


def find_figures(workspaces: Iterable[WorkspaceFolder], digest: str) -> dict[str, Any]:
    """Return the figures of the newest evaluation of the export with this manifest digest; none if there is none.

    They are looked for in each run's folder. Raises FigureNotFinite if the loss is NaN or infinite, CheckpointError for an invalid
    digest.
    """
    short = short_digest(digest)
    for workspace in workspaces:
        for run in _runs_with(workspace.path, short):
            result = _read(workspace.path, run, short)
            if result is not None:
                loss = loss_name(result["after"])
                check_figures(f"the export {digest}", {loss: result["after"].get(loss)})
                return {name: value for name, value in shown_figures(figures_of(result)).items() if value is not None}
    return {}


def _shown(workspace: Path, run: str, name: str) -> Json:
    row: Json = {"digest": name, "result": f"{FOLDER}/{name}/{RESULT}", "summary": f"{FOLDER}/{name}/{SUMMARY}", "problem": ""}
    result = _read(workspace, run, name)
    if result is None:
        return {**row, "problem": "it has no valid result"}
    before, after = result["before"], result["after"]
    loss = loss_name(after or before)
    return {
        **row,
        "before": shown_figures(before),
        "after": shown_figures(after),
        "loss": {"name": loss, "before": shown_number(before.get(loss)), "after": shown_number(after.get(loss))},
        "of": shown_text(loss_label(result), 200),
        "samples": [shown_text(stop_line(result.get("samples"), when), 200) for when in ("before", "after")],
        "rows": shown_number(result.get("rows")),
        "dataset": shown_text(result.get("dataset_digest"), 200),
        "sample": shown_json(result.get("sample")),
    }


def _read(workspace: Path, run: str, name: str) -> dict[str, Any] | None:
    try:
        result = read_json_inside(workspace, run, f"{FOLDER}/{name}/{RESULT}")
    except (StorageError, WorkspaceError):  # one bad evaluation does not hide the others
        return None
    if result is None or not all(isinstance(result.get(when), dict) for when in ("before", "after")):
        return None
    return result


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if _SHORT.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)]
    except OSError:  # the run was not evaluated
        return []
    return sorted(names)[:_MAX]


def _runs_with(workspace: Path, short: str) -> list[str]:
    """Return the runs that have evaluated an export, the latest evaluation first."""
    dated = []
    try:
        with os.scandir(workspace / RUNS) as entries:
            for number, entry in enumerate(entries):
                if number == _MAX_RUNS:
                    break
                try:
                    changed = os.stat(Path(entry.path) / FOLDER / short / RESULT, follow_symlinks=False).st_mtime
                except OSError:
                    continue
                dated.append((changed, entry.name))
    except OSError:
        return []
    return [name for _, name in sorted(dated, reverse=True)]
