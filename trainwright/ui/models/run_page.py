"""Everything about one run from its folder: its record, prepared inputs, trainings, evaluations, reports, and links to trackers.

The links lead to the tools that a training has reported to: addresses to open, or commands to copy. What they show is not rebuilt
here.
"""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import quote, urlsplit

from pydantic import ValidationError

from trainwright.api.errors import NotFound
from trainwright.api.objects import Obj
from trainwright.checkpoints.job_record import recorded_writers
from trainwright.storage.errors import StorageError, UnsafeFile
from trainwright.storage.plain_files import open_unlinked
from trainwright.text.foreign_texts import one_line, without_user
from trainwright.tracking.targets import sqlite_address
from trainwright.ui.call import Json
from trainwright.ui.models.evaluations import list_evaluations
from trainwright.ui.models.foreign_json import SUFFIXES, shown_json, shown_number, shown_text
from trainwright.ui.models.history import checkpoint_names, event_files
from trainwright.ui.models.run_rows import is_training, run_row
from trainwright.ui.models.workspaces import RunJobs, WorkspaceFolder, variables_of
from trainwright.workspace.layout import DATASETS, MODELS, OUTPUT, RUNS, run_path
from trainwright.workspace.receipt import NAME as RECEIPT
from trainwright.workspace.receipt import Receipt
from trainwright.workspace.run_record import DATASET, MODEL, finding_lines, read_run, recorded_findings

_STORES = {DATASET: DATASETS, MODEL: MODELS}
_NOT_TRAININGS = (OUTPUT, DATASET, MODEL, "evaluation", "tensorboard", "wandb")
_MAX_TRAININGS, _MAX_CHECKPOINTS, _MAX_FILES, _MAX_NAMES = 100, 100, 200, 20_000
_MAX_RECEIPT = 16 * 1024 * 1024
_MAX_URL, _MAX_LINKS = 2_000, 20
_WANDB = "https://wandb.ai"


def read_run_page(workspace: WorkspaceFolder, run: str, jobs: RunJobs | None) -> Json:
    """Read the record and the files of a run; `jobs` is None if TrainJobs cannot be listed.

    Raises NotFound, WorkspaceError for an invalid name or a link.
    """
    folder = run_path(workspace.path, run)
    if not folder.is_dir():
        raise NotFound(f"{workspace.path} has no run {run}")
    record = read_run(folder)
    digests = {DATASET: record.dataset, MODEL: record.model} if record is not None else {}
    texts = [name for name in _names(folder, folders=False) if name.endswith(SUFFIXES) and not name.startswith(".")]
    return {
        **run_row(workspace, run, record, jobs),
        "path": shown_text(folder),
        "prepared": {kind: read_origin_of(workspace.path, kind, digest) for kind, digest in digests.items() if digest},
        "trainings": [_training(workspace.path, place) for place in _trainings(folder)],
        "evaluations": list_evaluations(workspace.path, run),
        "findings": [shown_text(line) for line in finding_lines(recorded_findings(folder))],
        "files": texts[:_MAX_FILES],
    }


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


def _trainings(folder: Path) -> list[Path]:
    """Return the folders that trainings of the run write to: its own, and those of steps below it."""
    names = _names(folder, folders=True)
    below = [folder / name for name in names if name not in _NOT_TRAININGS and not name.startswith(".")]
    steps = [place for place in below if is_training(place)]
    own = [folder] if is_training(folder) or not steps else []
    return [*own, *steps][:_MAX_TRAININGS]


def _names(folder: Path, *, folders: bool) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            first = itertools.islice(entries, _MAX_NAMES)
            kept = [entry for entry in first if (entry.is_dir if folders else entry.is_file)(follow_symlinks=False)]
    except OSError:  # removed meanwhile, or none that may be read
        return []
    return sorted(entry.name for entry in kept)


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


class ToolLink(TypedDict):
    """`url` is an http(s) address, or empty; `command` starts the tool on local files, or is empty."""

    tool: str
    title: str
    url: str
    command: str


def links_in(folder: Path) -> list[ToolLink]:
    """Return how to open what trackers have written to a run's folder, or to that of a step below it."""
    found: list[ToolLink] = []
    for place in (folder / "tensorboard", folder / OUTPUT):
        if not place.is_symlink() and place.is_dir() and event_files(place):
            found.append(_link("TensorBoard", place.name, command=f"tensorboard --logdir {shlex.quote(str(place))}"))
    database = folder / "mlflow.db"
    if not database.is_symlink() and database.is_file():
        command = f"mlflow ui --backend-store-uri {shlex.quote(sqlite_address(folder))}"
        found.append(_link("MLflow", database.name, command=command))
    offline = folder / "wandb"
    if not offline.is_symlink() and offline.is_dir():
        found.append(_link("W&B", "offline runs", command=f"wandb sync {shlex.quote(str(offline))}/offline-run-*"))
    return found


def _link(tool: str, title: str, *, url: str = "", command: str = "") -> ToolLink:
    return ToolLink(tool=tool, title=without_user(one_line(title))[:200], url=url, command=command)


def links_of(trainjob: Obj) -> list[ToolLink]:
    """Return the addresses that a job's environment names for its trackers. Only http and https, and no credentials. Pure."""
    variables = _variables(trainjob)
    found: list[ToolLink] = []
    if server := safe_url(variables.get("MLFLOW_TRACKING_URI", "")):
        run, experiment = variables.get("MLFLOW_RUN_ID", ""), variables.get("MLFLOW_EXPERIMENT_ID", "")
        path = f"/#/experiments/{quote(experiment, safe='')}" if experiment else ""
        path = f"{path}/runs/{quote(run, safe='')}" if path and run else path
        found.append(
            _link("MLflow", variables.get("MLFLOW_EXPERIMENT_NAME", "") or "tracking server", url=f"{server.rstrip('/')}{path}")
        )
    entity, project = variables.get("WANDB_ENTITY", ""), variables.get("WANDB_PROJECT", "")
    if entity and project and (server := safe_url(variables.get("WANDB_BASE_URL", "") or _WANDB)):
        run = variables.get("WANDB_RUN_ID", "")
        path = "/".join(quote(part, safe="") for part in (entity, project, *(("runs", run) if run else ())))
        found.append(_link("W&B", f"{entity}/{project}", url=f"{server.rstrip('/')}/{path}"))
    return found[:_MAX_LINKS]


def _variables(trainjob: Obj) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, value in variables_of(trainjob):
        if name.startswith(("MLFLOW_", "WANDB_")):
            found.setdefault(name, value)
    return found


def safe_url(text: str) -> str:
    """Return an http(s) address without user name, password and query; "" for anything else. Pure."""
    if len(text) > _MAX_URL or one_line(text) != text or not text.isprintable() or " " in text or "\\" in text:
        return ""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not host:
        return ""
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}{f':{port}' if port else ''}{quote(parts.path, safe='/%:@-._~')}"
