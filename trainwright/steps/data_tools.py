"""Pulls a version of data and preprocesses it, for a run: its record says which version and which operations it used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainwright.storage.uri import StorageUri
from trainwright.tools.dvc_data import DvcData, pull_dvc_data
from trainwright.tools.ray_preprocess import Preprocessed, preprocess_dataset
from trainwright.workspace import begin_run, run_folder


def pull_run_data(
    workspace: Path,
    *,
    owner: str = "",
    run_id: str = "",
    map_index: int = -1,
    on_line: Callable[[str], None] | None = None,
    **options: Any,
) -> DvcData:
    """Pull a version of data with `pull_dvc_data` and its `options`. With a `run_id`, the run's record names the version.

    Raises ToolError, StorageError, WorkspaceError.
    """
    pulled = pull_dvc_data(workspace, on_line=on_line, **options)
    version = {"source": pulled.receipt.source, "revision": pulled.revision, "md5": pulled.md5, "digest": pulled.digest}
    _record(workspace, owner, run_id, map_index, {"dvc": {**version, "folder": _relative(pulled.folder, workspace)}})
    return pulled


def preprocess_run_data(
    workspace: Path,
    source: str,
    *,
    owner: str = "",
    run_id: str = "",
    map_index: int = -1,
    on_line: Callable[[str], None] | None = None,
    **options: Any,
) -> Preprocessed:
    """Preprocess a dataset with `preprocess_dataset` and its `options`. With a `run_id`, the run's record names the result.

    Raises ToolError, StorageError, WorkspaceError.
    """
    done = preprocess_dataset(workspace, source, on_line=on_line, **options)
    made = {"source": done.receipt.source, "digest": done.digest, "folder": _relative(done.folder, workspace)}
    _record(workspace, owner, run_id, map_index, {"preprocessed": made})
    return done


def data_uri(folder: Path) -> str:
    """Return the address of a folder as `initialize_dataset` takes it."""
    return str(StorageUri.from_path(folder))


def _record(workspace: Path, owner: str, run_id: str, map_index: int, inputs: dict[str, dict[str, str]]) -> None:
    if run_id:
        begin_run(workspace, run_folder(run_id, map_index), run=run_id, owner=owner, inputs=inputs)


def _relative(folder: Path, workspace: Path) -> str:
    return folder.relative_to(workspace.absolute()).as_posix()
