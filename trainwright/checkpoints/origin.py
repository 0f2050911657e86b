"""What checkpoints in an output folder come from: which dataset and model, and which job began the folder.

Both are small files in the folder itself, so that they go with it when it is moved.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from trainwright.storage.errors import StorageError
from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.workspace.receipt import NAME, read_receipt

ORIGIN = ".trainwright-origin.json"
BEGUN_BY = ".trainwright-job.json"
Origin = dict[str, str]
"""`dataset` and `model` to the digest of what was prepared, as far as it is known."""


def origin_of(workspace: Path, *, dataset: Path | None = None, model: Path | None = None) -> Origin:
    """Digests of the prepared dataset and model, as far as there are receipts of them.

    They lie at `workspace/dataset` and `workspace/model` unless other folders are given. Raises StorageError.
    """
    origin = {}
    for step, folder in (("dataset", dataset or workspace / "dataset"), ("model", model or workspace / "model")):
        receipt = read_receipt(folder)
        if receipt is not None:
            origin[step] = receipt.digest
        elif (folder / NAME).exists():  # a guess here would put good checkpoints aside
            raise StorageError(f"{folder / NAME} cannot be read: remove it and prepare the {step} again")
    return origin


def recorded_origin(output: Path) -> Origin | None:
    """What the checkpoints in `output` come from; None where nothing says it. Raises StorageError."""
    recorded: Origin | None = _read(output / ORIGIN)
    return recorded


def record_origin(output: Path, origin: Origin) -> None:
    if recorded_origin(output) != origin:
        write_bytes(output / ORIGIN, json.dumps(origin, sort_keys=True).encode())


def begun_by(output: Path) -> str:
    """The job that began this output with a wish of its own where to go on from; empty where none did. Raises StorageError."""
    return str((_read(output / BEGUN_BY) or {}).get("job") or "")


def record_beginning(output: Path, job: str) -> None:
    write_bytes(output / BEGUN_BY, json.dumps({"job": job}).encode())


def move_aside(folder: Path) -> Path:
    """Give it the first free name `FOLDER.previous-N` beside itself; returns that. Raises StorageError."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.previous-{number}")).exists():
        number += 1
    with disk_errors(folder):
        os.replace(folder, aside)
    return aside


def _read(path: Path) -> dict[str, str] | None:
    try:
        with disk_errors(path):
            content = json.loads(path.read_bytes()) if path.exists() else None
    except ValueError:
        content = ()
    if content is None or isinstance(content, dict):
        return content
    raise StorageError(f"{path} is not JSON as we write it: remove it to go on from the checkpoints beside it")
