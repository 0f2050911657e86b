"""The evaluations in a run's folder: the figures of each before and after training, by the export that was evaluated."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from trainwright.checkpoints.promotion import check_figures
from trainwright.evaluation.figures import loss_label, loss_name, stop_line, trained_mark
from trainwright.steps.checkpoints.evaluation_files import FOLDER, RESULT, SUMMARY, figures_of, short_digest
from trainwright.storage.errors import StorageError
from trainwright.ui.call import Json
from trainwright.ui.models.foreign_json import read_json_inside, shown_figures, shown_json, shown_number, shown_text
from trainwright.ui.models.workspaces import WorkspaceFolder
from trainwright.workspace.layout import RUNS, WorkspaceError, containing_run

_SHORT = re.compile(r"[0-9a-f]{12}")
_MAX = 50
_MAX_RUNS = 2_000


class Evaluation(NamedTuple):
    """An evaluation as the page shows it, and when its result was written, in seconds since the epoch."""

    shown: Json
    at: float


def list_evaluations(workspace: Path, run: str) -> list[Json]:
    """Return the evaluations of a run, the newest first; one whose result cannot be read has a problem.

    Raises WorkspaceError for an invalid name.
    """
    return [_shown(workspace, run, name) for name, _ in _dated(workspace, run)]


def newest_evaluation(workspace: Path, run: str) -> Evaluation | None:
    """Return the newest evaluation of a run with a valid result. Raises WorkspaceError for an invalid name."""
    for name, at in _dated(workspace, run):
        shown = _shown(workspace, run, name)
        if not shown["problem"]:  # an older one, if the newest cannot be read
            return Evaluation(shown, at)
    return None


class EvaluatedExports:
    """The evaluations in the runs of workspaces, by export. The workspaces are looked through once, when they are first asked."""

    def __init__(self, workspaces: Callable[[], Iterable[WorkspaceFolder]]):
        self._workspaces = workspaces
        self._known: dict[str, list[_Place]] | None = None

    def loss_of(self, digest: str) -> Json | None:
        """Return the newest loss of the export with this manifest digest, as in `list_evaluations`; None if it was not evaluated.

        Raises CheckpointError for an invalid digest.
        """
        for place, _ in self._results(digest):
            shown = _shown(place.workspace, place.run, short_digest(digest))
            return {**shown["loss"], "of": shown["of"]}
        return None

    def figures_of(self, digest: str) -> dict[str, Any]:
        """Return the figures of the newest evaluation of the export with this manifest digest; none if there is none.

        Raises FigureNotFinite if the loss is NaN or infinite, CheckpointError for an invalid digest.
        """
        for _, result in self._results(digest):
            loss = loss_name(result["after"])
            check_figures(f"the export {digest}", {loss: result["after"].get(loss)})
            return {name: value for name, value in shown_figures(figures_of(result)).items() if value is not None}
        return {}

    def _results(self, digest: str) -> Iterator[tuple[_Place, dict[str, Any]]]:
        short = short_digest(digest)
        if self._known is None:
            self._known = _places(self._workspaces())
        for place in self._known.get(short, []):
            result = _read(place.workspace, place.run, short)
            if result is not None and result.get("checkpoint_digest", digest) == digest:
                yield place, result


class _Place(NamedTuple):
    """Where an export was evaluated, and when, in seconds since the epoch."""

    at: float
    workspace: Path
    run: str


def _places(workspaces: Iterable[WorkspaceFolder]) -> dict[str, list[_Place]]:
    """Return where exports were evaluated by the short form of their digests, the latest evaluation first."""
    found: dict[str, list[_Place]] = {}
    for workspace in workspaces:
        try:
            with os.scandir(workspace.path / RUNS) as entries:
                runs = [entry.name for entry in islice(entries, _MAX_RUNS) if entry.is_dir(follow_symlinks=False)]
        except OSError:  # removed meanwhile
            continue
        for run in runs:
            with suppress(WorkspaceError):  # a folder that is none of a run
                for short, at in _dated(workspace.path, run):
                    found.setdefault(short, []).append(_Place(at, workspace.path, run))
    return {short: sorted(places, reverse=True) for short, places in found.items()}


def _shown(workspace: Path, run: str, name: str) -> Json:
    row: Json = {"digest": name, "summary": f"{FOLDER}/{name}/{SUMMARY}", "problem": ""}
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
        "mark": shown_text(trained_mark(result), 200),
        "rowsDigest": shown_text(result.get("rows_digest"), 200),
        "samples": [shown_text(stop_line(result.get("samples"), when), 200) for when in ("before", "after")],
        "rows": shown_number(result.get("rows")),
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


def _dated(workspace: Path, run: str) -> list[tuple[str, float]]:
    """Return the names of a run's evaluations and when their results were written, 0 without one; the newest first."""
    path = workspace / RUNS / containing_run(f"{RUNS}/{run}") / FOLDER
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if _SHORT.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)]
    except OSError:  # the run was not evaluated
        return []
    return sorted(((name, _written(path / name / RESULT)) for name in names), key=lambda each: (-each[1], each[0]))[:_MAX]


def _written(path: Path) -> float:
    try:
        return os.stat(path, follow_symlinks=False).st_mtime
    except OSError:  # not there yet, or removed meanwhile
        return 0.0
