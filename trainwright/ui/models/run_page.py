"""Everything about one run from its folder: its record, prepared inputs, trainings, evaluations, reports, and links to trackers."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainwright.api.errors import NotFound
from trainwright.checkpoints.job_record import recorded_writers
from trainwright.storage.errors import StorageError, UnsafeFile
from trainwright.storage.plain_files import open_unlinked
from trainwright.ui.call import Json
from trainwright.ui.models.evaluations import list_evaluations
from trainwright.ui.models.foreign_json import SUFFIXES, shown_json, shown_number, shown_text
from trainwright.ui.models.history import checkpoint_names
from trainwright.ui.models.job_run import RunJobs
from trainwright.ui.models.run_rows import is_training, run_row
from trainwright.ui.models.tracking_links import links_in
from trainwright.ui.models.workspaces import WorkspaceFolder
from trainwright.workspace.layout import DATASETS, MODELS, OUTPUT, RUNS, run_path
from trainwright.workspace.receipt import NAME as RECEIPT
from trainwright.workspace.receipt import Receipt
from trainwright.workspace.run_record import DATASET, MODEL, finding_lines, read_run, recorded_findings

_STORES = {DATASET: DATASETS, MODEL: MODELS}
_NOT_TRAININGS = (OUTPUT, DATASET, MODEL, "evaluation", "tensorboard", "wandb")
_MAX_TRAININGS, _MAX_CHECKPOINTS, _MAX_FILES, _MAX_NAMES = 100, 100, 200, 20_000
_MAX_RECEIPT = 16 * 1024 * 1024


def read_run_page(workspace: WorkspaceFolder, run: str, jobs: RunJobs | None) -> Json:
    """Read the record and the files of a run; `jobs` is None if TrainJobs cannot be listed.

    Raises NotFound, WorkspaceError for an invalid name or a link.
    """
    folder = run_path(workspace.path, run)
    if not folder.is_dir():
        raise NotFound(f"{workspace.path} has no run {run}")
    record = read_run(folder)
    digests = {DATASET: record.dataset, MODEL: record.model} if record is not None else {}
    return {
        **run_row(workspace, run, record, jobs),
        "path": shown_text(folder),
        "prepared": {kind: read_origin_of(workspace.path, kind, digest) for kind, digest in digests.items() if digest},
        "trainings": [_training(workspace.path, place) for place in _trainings(folder)],
        "evaluations": list_evaluations(workspace.path, run),
        "findings": [shown_text(line) for line in finding_lines(recorded_findings(folder))],
        "files": _texts(folder),
    }


def read_origin_of(workspace: Path, kind: str, digest: str) -> Json:
    """Return where a prepared dataset or model comes from, by its receipt; only the digest if it has none here."""
    found: Json = {"digest": shown_text(digest, 200), "source": "", "revision": "", "files": None, "bytes": None, "details": {}}
    name = digest.removeprefix("sha256:")
    try:
        with open_unlinked(workspace, (_STORES[kind], name, RECEIPT)) as file:
            content = file.read(_MAX_RECEIPT + 1)
        receipt = Receipt.model_validate_json(content[:_MAX_RECEIPT])
    except (OSError, UnsafeFile, ValidationError):  # prepared elsewhere, or deleted since
        return found
    return {
        **found,
        "source": shown_text(receipt.source),
        "revision": shown_text(receipt.revision, 300),
        "options": shown_json(receipt.options),
        "files": len(receipt.files),
        "bytes": shown_number(sum(file.size for file in receipt.files)),
        "details": shown_json(receipt.details),
    }


def _trainings(folder: Path) -> list[Path]:
    """Return the folders that trainings of the run write to: its own, and those of steps below it."""
    names = _names(folder, folders=True)
    below = [folder / name for name in names if name not in _NOT_TRAININGS and not name.startswith(".")]
    steps = [place for place in below if is_training(place)]
    own = [folder] if is_training(folder) or not steps else []
    return [*own, *steps][:_MAX_TRAININGS]


def _training(workspace: Path, place: Path) -> Json:
    output = place / OUTPUT
    names = [] if output.is_symlink() else checkpoint_names(output)
    try:
        writers: list[Any] = [] if output.is_symlink() else [writer.name for writer in recorded_writers(output) or []]
        problem = ""
    except (StorageError, UnsafeFile) as error:
        writers, problem = [], shown_text(error)
    return {
        "folder": place.relative_to(workspace).as_posix(),
        "name": "" if place.parent.name == RUNS else shown_text(place.name, 300),
        "trainjobs": [shown_text(name, 300) for name in dict.fromkeys(writers)][-20:],
        "checkpoints": [shown_text(name, 200) for name in names[:_MAX_CHECKPOINTS]],
        "checkpointCount": len(names),
        "links": links_in(place),
        "problem": problem,
    }


def _texts(folder: Path) -> list[str]:
    return [name for name in _names(folder, folders=False) if name.endswith(SUFFIXES) and not name.startswith(".")][:_MAX_FILES]


def _names(folder: Path, *, folders: bool) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            first = itertools.islice(entries, _MAX_NAMES)
            kept = [entry for entry in first if (entry.is_dir if folders else entry.is_file)(follow_symlinks=False)]
    except OSError:  # removed meanwhile, or none that may be read
        return []
    return sorted(entry.name for entry in kept)
