"""Records in an output folder which dataset, model and builtin trainer its checkpoints come from, and which job created it.

Both are small files in the folder itself, so that they stay with it when the folder is archived.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from trainwright.storage.errors import StorageError
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.workspace.receipt import NAME, read_receipt

ORIGIN = ".trainwright-origin.json"
INITIAL_JOB = ".trainwright-job.json"
_MAX_BYTES = 1024 * 1024
Origin = dict[str, str]
"""Maps `dataset` and `model` to the digest of the prepared data, `trainer` to the name of the builtin trainer, and `training` to the
digest of what the request trains, if known."""
TRAINER, TRAINING = "trainer", "training"


def read_origin(workspace: Path, *, dataset: Path | None = None, model: Path | None = None) -> Origin:
    """Return the digests of the prepared dataset and model that have receipts.

    The folders default to `workspace/dataset` and `workspace/model`. Raises StorageError.
    """
    origin = {}
    for step, folder in (("dataset", dataset or workspace / "dataset"), ("model", model or workspace / "model")):
        receipt = read_receipt(folder)
        if receipt is not None:
            origin[step] = receipt.digest
        elif (folder / NAME).exists():  # treating it as unknown could archive valid checkpoints
            raise StorageError(f"{folder / NAME} cannot be parsed; remove it and prepare the {step} again")
    return origin


def is_same_origin(one: object, other: object) -> bool:
    """Whether checkpoints have the same origin. A trainer and a training are compared only if both are known: other programs do not
    name theirs."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one == other
    programs = [{str(origin[name]) for origin in (one, other) if origin.get(name)} for name in (TRAINER, TRAINING)]
    inputs = [{name: origin[name] for name in origin if name not in (TRAINER, TRAINING)} for origin in (one, other)]
    return inputs[0] == inputs[1] and all(len(known) < 2 for known in programs)


def recorded_origin(output: Path) -> Origin | None:
    """Return the origin of the checkpoints in `output`, or None without a record. Raises StorageError."""
    recorded: Origin | None = _read(output / ORIGIN)
    return recorded


def record_origin(output: Path, origin: Origin) -> None:
    recorded = recorded_origin(output)
    if recorded is not None and is_same_origin(recorded, origin):
        origin = {**recorded, **origin}
    if recorded != origin:
        write_bytes(output / ORIGIN, json.dumps(origin, sort_keys=True).encode())


def recorded_initial_job(output: Path) -> str:
    """Return the job that created this output with an explicit `resume` setting, or an empty string. Raises StorageError."""
    return str((_read(output / INITIAL_JOB) or {}).get("job") or "")


def record_initial_job(output: Path, job: str) -> None:
    write_bytes(output / INITIAL_JOB, json.dumps({"job": job}).encode())


def archive(folder: Path) -> Path:
    """Rename the folder to the first free name `FOLDER.previous-N`. Returns the new path. Raises StorageError."""
    number = 1
    while (archived := folder.with_name(f"{folder.name}.previous-{number}")).exists():
        number += 1
    with disk_errors(folder):
        os.replace(folder, archived)
    return archived


def _read(path: Path) -> dict[str, str] | None:
    content = None
    try:
        # The leader of a job may archive the folder while other nodes read it.
        with disk_errors(path), contextlib.suppress(FileNotFoundError):
            content = json.loads(read_plain(path, _MAX_BYTES)) if path.exists() else None
    except (ValueError, RecursionError):
        content = ()
    if content is None or isinstance(content, dict):
        return content
    raise StorageError(f"{path} is not valid JSON of Trainwright; remove it to resume from the checkpoints beside it")
