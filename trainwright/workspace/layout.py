"""Where things lie in a workspace folder W: `datasets/HEX`, `models/HEX`, `runs/NAME`. Everything else asks here.

The names themselves are made in `jobs.run_folder`, where manifests are built too.
"""

from __future__ import annotations

import re
from pathlib import Path

from trainwright.jobs.run_folder import DATASETS, MODELS, RUNS, Kind, prepared_folder, run_folder
from trainwright.workspace.errors import WorkspaceError

OUTPUT = "output"
"""In a run's folder: what training writes."""
KINDS: tuple[Kind, ...] = ("dataset", "model")
_STORES = {"dataset": DATASETS, "model": MODELS}
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_RUN = re.compile(rf"(?:{RUNS}/)?({_PART})")
_STEP = re.compile(rf"{RUNS}/({_PART})(?:/{_PART})*")


def store_path(workspace: Path, kind: Kind) -> Path:
    """The folder that holds all prepared datasets or models."""
    return workspace / _STORES[kind]


def prepared_path(workspace: Path, kind: Kind, digest: str) -> Path:
    """The folder of one prepared dataset or model. Raises ValueError for a digest that is none."""
    return workspace / prepared_folder(kind, digest)


def run_name(folder: str) -> str:
    """The name in `runs/NAME` (or a bare name). Raises WorkspaceError for anything that `run_folder` does not make."""
    match = _RUN.fullmatch(folder)
    if match is None:
        raise WorkspaceError(f"{folder!r} is no folder of a run; expected {RUNS}/NAME")
    return match[1]


def run_of(folder: str) -> str:
    """The name of the run whose folder this is, or is below: `runs/NAME/evaluation/x` too. Raises WorkspaceError."""
    match = _STEP.fullmatch(folder)
    return run_name(folder) if match is None else match[1]


def run_path(workspace: Path, folder: str) -> Path:
    """The path of a run's folder. Raises WorkspaceError for a name that is none, and for a link: it may lead anywhere."""
    return step_path(workspace, f"{RUNS}/{run_name(folder)}")


def step_path(workspace: Path, folder: str) -> Path:
    """The path of a run's folder, or of one below it that a step alone writes to. Raises as `run_path`."""
    run_of(folder)
    path = workspace
    for part in (RUNS, *folder.removeprefix(f"{RUNS}/").split("/")):
        path /= part
        if path.is_symlink():
            raise WorkspaceError(f"{path} is a link; a run's folder must be a folder of the workspace: remove the link")
    return path


__all__ = [
    "DATASETS",
    "KINDS",
    "MODELS",
    "OUTPUT",
    "RUNS",
    "Kind",
    "prepared_folder",
    "prepared_path",
    "run_folder",
    "run_name",
    "run_of",
    "run_path",
    "step_path",
    "store_path",
]
