"""The paths in a workspace folder: `datasets/HEX`, `models/HEX`, `runs/NAME`. All other modules use these functions.

The names themselves are made in `jobs.state.run_folder`, where manifests are built too. Pods of different users share a workspace and
must be able to write each other's files, so every program of it sets the umask.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from trainwright.api.names import UMASK_VARIABLE
from trainwright.jobs.state.run_folder import DATASETS, MODELS, RUNS, Kind, prepared_folder, run_folder

__all__ = [
    "DATASETS",
    "INDEX",
    "KINDS",
    "MODELS",
    "OUTPUT",
    "RUNS",
    "Kind",
    "containing_run",
    "index_path",
    "prepared_folder",
    "prepared_path",
    "run_folder",
    "run_name",
    "run_path",
    "step_path",
    "store_path",
]
INDEX = ".index"
OUTPUT = "output"
"""The subfolder of a run's folder that training writes to."""
KINDS: tuple[Kind, ...] = ("dataset", "model")
_STORES = {"dataset": DATASETS, "model": MODELS}
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_RUN = re.compile(rf"(?:{RUNS}/)?({_PART})")
_STEP = re.compile(rf"{RUNS}/({_PART})(?:/{_PART})*")


def store_path(workspace: Path, kind: Kind) -> Path:
    """Return the folder with all prepared datasets or models. Raises WorkspaceError for a link, which may point anywhere."""
    return _no_link(workspace / _STORES[kind], "prepared inputs")


def index_path(workspace: Path, kind: Kind) -> Path:
    """Return the folder with the index of a store. Raises WorkspaceError for a link."""
    return _no_link(store_path(workspace, kind) / INDEX, "an index")


def prepared_path(workspace: Path, kind: Kind, digest: str) -> Path:
    """Return the folder of one prepared dataset or model. Raises ValueError for an invalid digest."""
    return workspace / prepared_folder(kind, digest)


def run_name(folder: str) -> str:
    """Return the name in `runs/NAME` (or a bare name). Raises WorkspaceError for names that `run_folder` does not generate."""
    match = _RUN.fullmatch(folder)
    if match is None:
        raise WorkspaceError(f"{folder!r} is not a run folder; expected {RUNS}/NAME")
    return match[1]


def containing_run(folder: str) -> str:
    """Return the name of the run that contains a folder, as in `runs/NAME/evaluation/x`. Raises WorkspaceError."""
    match = _STEP.fullmatch(folder)
    return run_name(folder) if match is None else match[1]


def run_path(workspace: Path, folder: str) -> Path:
    """Return the path of a run's folder. Raises WorkspaceError for an invalid name, and for a link, which may point anywhere."""
    return step_path(workspace, f"{RUNS}/{run_name(folder)}")


def step_path(workspace: Path, folder: str) -> Path:
    """Return the path of a run's folder, or of a step's folder below it. Raises the errors of `run_path`."""
    containing_run(folder)
    path = workspace
    for part in (RUNS, *folder.removeprefix(f"{RUNS}/").split("/")):
        path = _no_link(path / part, "a run's folder")
    return path


def _no_link(path: Path, what: str) -> Path:
    if path.is_symlink():
        raise WorkspaceError(f"{path} is a link; remove it: {what} must be inside the workspace")
    return path


class WorkspaceError(Exception):
    """A folder of the workspace is invalid. A retry cannot succeed."""


class PreparedMismatch(WorkspaceError):
    """A folder does not contain the expected prepared dataset or model."""


def apply_umask(environ: Mapping[str, str]) -> None:
    """Set the umask of this process to TRAINWRIGHT_UMASK (octal). Unset or empty keeps the current one.

    Raises WorkspaceError for an invalid value.
    """
    text = environ.get(UMASK_VARIABLE, "")
    if not text:
        return
    if not re.fullmatch(r"0?[0-7]{1,3}", text):
        raise WorkspaceError(f"{UMASK_VARIABLE}: {text!r} is not a umask; expected octal digits, as in 0002")
    os.umask(int(text, 8))
