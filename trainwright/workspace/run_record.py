"""`run.json` in a run's folder: whose run it is, since when, whether it has ended, and what it uses of the shared store.

Pruning goes by it. A record that cannot be read makes a run unknown, and an unknown run is never deleted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from trainwright.api import times
from trainwright.storage.locks import exclusive
from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.workspace.layout import run_path

log = logging.getLogger(__name__)
RECORD = "run.json"
DATASET, MODEL = "dataset", "model"
"""Where a run finds its prepared inputs."""
_LARGEST = 1024 * 1024
"""Bytes: a record has some hundreds, and training can write into the folder."""
_HELD = ".lock"


class RunRecord(BaseModel):
    """Times are RFC 3339, UTC; `ended` is None while the run goes on. `dataset` and `model` are digests, `exported` a URI."""

    model_config = ConfigDict(frozen=True, extra="allow")

    run: str
    owner: str = ""
    started: str
    updated: str
    ended: str | None = None
    dataset: str = ""
    model: str = ""
    exported: str = ""

    @field_validator("started", "updated", "ended")
    @classmethod
    def _moment(cls, value: str | None) -> str | None:
        if value is not None and not times.is_moment(value):
            raise ValueError(f"{value!r} is no RFC 3339 time")
        return value


def begin_run(
    workspace: Path,
    folder: str,
    *,
    run: str,
    owner: str,
    dataset: str = "",
    model: str = "",
    now: Callable[[], str] = times.now,
) -> RunRecord:
    """Make the run's folder `runs/NAME` and its record, or open the record of a run that is tried again.

    The folder gets an empty `dataset` and `model` to mount those on: a container runtime that is root may not create them on a
    file server that does not trust root.
    Digests that are not given stay what they were. Raises WorkspaceError, StorageError.
    """
    with changing(workspace, folder) as path:
        path.mkdir(parents=True, exist_ok=True)
        for kind in [kind for kind, digest in ((DATASET, dataset), (MODEL, model)) if digest]:
            (path / kind).mkdir(exist_ok=True)
        before = read_run(path)
        if before is None or before.run != run:
            moment = now()
            before = RunRecord(run=run, owner=owner, started=moment, updated=moment)
        changes = {"owner": owner, "dataset": dataset or before.dataset, "model": model or before.model}
        return _write(path, before, {**changes, "ended": None, "updated": now()})


def touch_run(
    workspace: Path,
    folder: str,
    *,
    dataset: str = "",
    model: str = "",
    exported: str = "",
    now: Callable[[], str] = times.now,
) -> RunRecord | None:
    """Note that the run is at work, and what is known of it by now; None where it has no record that can be read.

    Raises WorkspaceError, StorageError.
    """
    return _update(workspace, folder, {"dataset": dataset, "model": model, "exported": exported}, {"updated": now()})


def end_run(workspace: Path, folder: str, *, exported: str = "", now: Callable[[], str] = times.now) -> RunRecord | None:
    """Note that the run has ended: from now on it may be pruned. None where it has no record that can be read.

    Raises WorkspaceError, StorageError.
    """
    moment = now()
    return _update(workspace, folder, {"exported": exported}, {"updated": moment, "ended": moment})


def drop_empty_run(workspace: Path, folder: str) -> bool:
    """Remove the folder of a run that has written nothing but its record; whether it was one. Raises WorkspaceError, StorageError."""
    with changing(workspace, folder) as path, disk_errors(path):
        if not path.is_dir() or {entry.name for entry in path.iterdir()} - {RECORD, DATASET, MODEL}:
            return False
        mounts = [path / kind for kind in (DATASET, MODEL) if (path / kind).is_dir()]
        if any(any(mount.iterdir()) for mount in mounts):
            return False
        (path / RECORD).unlink(missing_ok=True)
        for empty in (*mounts, path):
            empty.rmdir()
        return True


def read_run(folder: Path) -> RunRecord | None:
    """The record in a run's folder (a path), or None where there is none that makes sense. Links are not followed."""
    try:
        descriptor = os.open(folder / RECORD, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) or size > _LARGEST:
            return None
        return RunRecord.model_validate_json(os.read(descriptor, _LARGEST))
    except (OSError, ValidationError):
        return None
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def changing(workspace: Path, folder: str) -> Iterator[Path]:
    """The path of a run's folder while nobody else changes its record or deletes it. Raises WorkspaceError, StorageError."""
    path = run_path(workspace, folder)
    with contextlib.ExitStack() as held:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(exclusive(path.with_name(f".{path.name}{_HELD}")))
        yield path


def _update(workspace: Path, folder: str, known: dict[str, str], changes: dict[str, str]) -> RunRecord | None:
    with changing(workspace, folder) as path:
        before = read_run(path)
        if before is None:
            log.warning("the run has no record that can be read folder=%s", path)
            return None
        return _write(path, before, {**{name: value for name, value in known.items() if value}, **changes})


def _write(path: Path, before: RunRecord, changes: dict[str, str | None]) -> RunRecord:
    record = before.model_copy(update=changes)
    write_bytes(path / RECORD, record.model_dump_json(indent=1).encode() + b"\n")
    return record
