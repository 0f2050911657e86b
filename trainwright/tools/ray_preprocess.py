"""Preprocesses a dataset of the workspace with Ray Data: on a Ray that lives as long as the step, or on a cluster.

The result is named by what goes in, the files' contents and the operations, so that the same preprocessing is done once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.storage.claims import mounted
from trainwright.storage.locks import file_lock
from trainwright.storage.plain_files import folder_files
from trainwright.storage.scratch import scratch_folder
from trainwright.storage.transfer import disk_errors
from trainwright.storage.uri import StorageUri
from trainwright.text.foreign_texts import shown_uri
from trainwright.tools.content_folder import find_folder, publish_folder, receipt_of
from trainwright.tools.environment import tool_environment
from trainwright.tools.errors import BadToolInput
from trainwright.tools.run_tool import run_tool
from trainwright.workspace.receipt import Receipt, ReceiptFile, digest_files

PREPROCESSED = "preprocessed"
KIND = "preprocessed-dataset"
TIMEOUT_SECONDS = 24 * 3600.0
FORMATS = (".jsonl.gz", ".jsonl", ".json", ".csv", ".parquet")
_VERSIONS = ">=2.60,<3"
_VERSION = 1
"""Of the operations: a change of what they do is another digest."""
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_METRICS_EXPORT_PORT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@dataclass(frozen=True)
class Preprocessed:
    """A preprocessed dataset: its folder, and how many rows went in, came out, and were dropped for which reason."""

    folder: Path
    receipt: Receipt

    @property
    def digest(self) -> str:
        return self.receipt.digest

    @property
    def rows_in(self) -> int:
        return int(self.receipt.details["rows_in"])

    @property
    def rows_out(self) -> int:
        return int(self.receipt.details["rows_out"])

    @property
    def dropped(self) -> dict[str, int]:
        return dict(self.receipt.details["dropped"])


def ray_requirements(ray_address: str = "") -> list[str]:
    """Return what the environment of Ray Data needs: for an address ray://HOST:PORT also Ray's client."""
    return [f"ray[{'client,data' if ray_address.startswith('ray://') else 'data'}]{_VERSIONS}"]


def preprocess_dataset(
    workspace: Path,
    source: str,
    *,
    columns: Mapping[str, str] | None = None,
    normalize_whitespace: bool = True,
    transform: Callable[..., Any] | str | None = None,
    drop_empty: bool = True,
    min_chars: int = 0,
    max_chars: int = 0,
    deduplicate: bool = True,
    deduplicate_by: Sequence[str] = (),
    ray_address: str = "",
    timeout_seconds: float = TIMEOUT_SECONDS,
    on_line: Callable[[str], None] | None = None,
) -> Preprocessed:
    """Preprocess a file, or all files of a folder, to `workspace/preprocessed/HEX`, one JSON Lines file for each.

    The operations are applied in the order of the arguments, to the rows in the order of the sorted files.

    Args:
        workspace: Folder of the workspace.
        source: A path in the workspace, an absolute one, file:// or pvc://; JSON Lines (also .gz), JSON, CSV, Parquet.
        columns: Column of the source for each column to keep. Empty: all as they are.
        normalize_whitespace: Whether to unify line ends and spaces, and strip texts; indentation stays.
        transform: A function of a row that returns a row, or None to drop it, or its source. It contains its imports.
        drop_empty: Whether to drop rows whose texts are all blank.
        min_chars: Minimum length of all texts of a row together.
        max_chars: Maximum length; 0 has none.
        deduplicate: Whether to drop rows that equal an earlier one, also of another file.
        deduplicate_by: Columns that are compared. Empty: all.
        ray_address: Address of a Ray cluster that sees the workspace at the same path. Empty: one started here.
        timeout_seconds: How long it may take, the installation of Ray not included.
        on_line: Called with each line of output, in another thread.

    Raises BadToolInput, also if no row is left, ToolFailed, ToolTimeout, ToolUnavailable, StorageError.
    """
    operations = _operations(
        columns, normalize_whitespace, transform, drop_empty, min_chars, max_chars, deduplicate, deduplicate_by
    )
    folder, paths = _source_files(workspace, source)
    with disk_errors(folder):
        files = digest_files(folder, paths)
    digest = _digest([[file.path, file.size, file.sha256] for file in files])
    target = workspace.absolute() / PREPROCESSED / _digest([_VERSION, digest, operations])
    with disk_errors(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
    if (receipt := find_folder(target)) is not None:
        return Preprocessed(target, receipt)
    with scratch_folder(target, "preprocess") as scratch, file_lock(scratch.with_name("program.lock")) as lock:
        made = run_tool(
            "ray_preprocess",
            {
                "files": _requested(folder, files),
                "operations": operations,
                "target": str(scratch / "data"),
                "ray_address": ray_address,
            },
            python=tool_environment(ray_requirements(ray_address), name="ray"),
            timeout_seconds=timeout_seconds,
            on_line=on_line,
            variables=("RAY_AUTH_*", "RAY_USE_TLS", "RAY_TLS_*") if ray_address else (),
            environment=_QUIET,
            locks=[lock],
        )
        if not made["rows_out"]:
            reasons = ", ".join(f"{count} {reason}" for reason, count in made["dropped"].items())
            raise BadToolInput(f"{shown_uri(source)}: no row is left of {made['rows_in']}{f': {reasons}' if reasons else ''}")
        receipt = receipt_of(
            scratch / "data", KIND, source=shown_uri(source).strip("'\""), revision=digest, options=operations, details=made
        )
        return Preprocessed(target, publish_folder(scratch / "data", target, receipt))


def _operations(
    columns: Mapping[str, str] | None,
    normalize_whitespace: bool,
    transform: Callable[..., Any] | str | None,
    drop_empty: bool,
    min_chars: int,
    max_chars: int,
    deduplicate: bool,
    deduplicate_by: Sequence[str],
) -> dict[str, Any]:
    """Return the operations as JSON. Raises BadToolInput."""
    from trainwright.jobs.code.function_source import source_of

    if min_chars < 0 or max_chars < 0 or (max_chars and max_chars < min_chars):
        raise BadToolInput(
            f"min_chars {min_chars} and max_chars {max_chars}: expected 0 or more, and max_chars 0 or the larger one"
        )
    if isinstance(deduplicate_by, str) or not all(isinstance(column, str) and column for column in deduplicate_by):
        raise BadToolInput(f"deduplicate_by: {deduplicate_by!r} is not a list of columns")
    for column, name in (columns or {}).items():
        if not (isinstance(column, str) and column and isinstance(name, str) and name):
            raise BadToolInput(f"columns: {column!r}: {name!r} is not a column with the name of one in the source")
    try:
        function = source_of(transform)
    except ValueError as error:
        raise BadToolInput(f"transform: {error}") from error
    return {
        "columns": dict(columns or {}),
        "normalize_whitespace": normalize_whitespace,
        "transform": function.as_json() if function is not None else None,
        "drop_empty": drop_empty,
        "min_chars": min_chars,
        "max_chars": max_chars,
        "deduplicate": deduplicate,
        "deduplicate_by": list(deduplicate_by) if deduplicate else [],
    }


def _source_files(workspace: Path, source: str) -> tuple[Path, list[Path]]:
    """Return the folder of the source, and the files in it to read. Raises BadToolInput, StorageError."""
    if "://" in source:
        uri = mounted(StorageUri.parse(source))
        if uri.scheme != "file":
            raise BadToolInput(f"{shown_uri(source)}: not in the workspace; pull it first, or give a path, file:// or pvc://")
        path = uri.path
    else:
        path = workspace.absolute() / source
    if path.is_file():
        folder, found = path.parent, [Path(path.name)]
    elif path.is_dir():
        with disk_errors(path):
            inside = folder_files(path)
        inside.require_none_refused(path, _is_read)
        folder, found = path, list(inside.files)
    else:
        raise BadToolInput(f"{shown_uri(source)}: no such file or folder")
    read = [file for file in found if _is_read(file)]
    if not read:
        others = f"; it has {', '.join(map(str, found[:5]))}" if found else ""
        raise BadToolInput(f"{shown_uri(source)} has no file that can be read ({', '.join(FORMATS)}){others}")
    return folder, read


def _is_read(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)
    return not hidden and _format(path.name) != ""


def _format(name: str) -> str:
    return next((suffix for suffix in FORMATS if name.lower().endswith(suffix)), "")


def _requested(folder: Path, files: Sequence[ReceiptFile]) -> list[dict[str, Any]]:
    """Describe the files to the program; each output has the name of its file, so that splits and subsets keep theirs."""
    taken: set[str] = set()
    requested = []
    for index, file in enumerate(files):
        form = _format(file.path)
        output = f"{file.path[: -len(form)]}.jsonl"
        if output in taken:
            output = f"{file.path}.jsonl"
        taken.add(output)
        requested.append(
            {
                "index": index,
                "path": str(folder / file.path),
                "name": file.path,
                "format": form,
                "size": file.size,
                "output": output,
            }
        )
    return requested


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
