"""`run.json` in a run's folder: its owner, when it started and ended, and the prepared inputs that it uses.

Pruning relies on it. A run without a valid record is unknown, and unknown runs are never deleted. The verdict on a run's dataset is
shown by the export of its checkpoints, their evaluation, the model card and the page; anybody with access to the volume may have
written it, so that what is read is bounded.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from trainwright.api import times
from trainwright.storage.errors import StorageError, UnsafeFile
from trainwright.storage.locks import file_lock
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.text.foreign_texts import one_line
from trainwright.workspace.layout import run_path

log = logging.getLogger(__name__)
RECORD = "run.json"
DATASET_REPORTS = ("dataset-report.md", "dataset-report.html", "dataset-report.json")
"""The pages of the report on the dataset of a run, and its figures."""
DATASET, MODEL = "dataset", "model"
"""The mount points of the prepared inputs in a run's folder."""
_MAX_BYTES = 1024 * 1024
"""A record has a few hundred bytes, but training can write to the folder too."""
_LOCK_SUFFIX = ".lock"
_MAX_FAILED = 2000
_MAX_EARLIER = 100
"""Of each kind. A run has a few trainings; one that is run again with the same name each night has more."""
FINDINGS = "data_findings"
"""In the metadata of a manifest, and in the result of an evaluation."""
FIGURES = DATASET_REPORTS[2]
_SEVERITIES = ("refused", "warning", "not checked", "note")
_MAX_FINDINGS = 20
_MAX_TEXT = 600
Finding = dict[str, str]
"""`severity`, `name` for programs, and `text`."""


class RunRecord(BaseModel):
    """Times are RFC 3339, UTC. `ended` is None while the run is active. `dataset` and `model` are digests, `exported` a URI.
    `failed` is why its last attempt has failed; it may be resumed.

    `inputs` names what else the run was made of, as versions of data. A run with several trainings has the last of each; `earlier`
    has those before, oldest first, by `dataset`, `model` and `exported`.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    run: str
    owner: str = ""
    started: str
    updated: str
    ended: str | None = None
    failed: str = ""
    dataset: str = ""
    model: str = ""
    exported: str = ""
    inputs: dict[str, dict[str, str]] = {}
    earlier: dict[str, tuple[str, ...]] = {}

    def all_of(self, name: str) -> list[str]:
        """Return all that the run had of `dataset`, `model` or `exported`, the last one at the end."""
        return [each for each in (*self.earlier.get(name, ()), getattr(self, name)) if each]

    @field_validator("started", "updated", "ended")
    @classmethod
    def _moment(cls, value: str | None) -> str | None:
        if value is not None and not times.is_moment(value):
            raise ValueError(f"{value!r} is not an RFC 3339 time")
        return value


def begin_run(
    workspace: Path,
    folder: str,
    *,
    run: str,
    owner: str,
    dataset: str = "",
    model: str = "",
    inputs: Mapping[str, dict[str, str]] | None = None,
    now: Callable[[], str] = times.now,
) -> RunRecord:
    """Create the run's folder `runs/NAME` and its record, or reopen the record of a retried run.

    For the given digests, empty mount points `dataset` and `model` are created: on a file server that squashes root, the
    container runtime could not create them.
    Omitted digests and inputs keep their value. Raises WorkspaceError, StorageError.
    """
    with lock_run(workspace, folder) as path:
        path.mkdir(parents=True, exist_ok=True)
        for kind in [kind for kind, digest in ((DATASET, dataset), (MODEL, model)) if digest]:
            (path / kind).mkdir(exist_ok=True)
        before = read_run(path)
        if before is None or before.run != run:
            moment = now()
            before = RunRecord(run=run, owner=owner, started=moment, updated=moment)
        changes: dict[str, Any] = {"owner": owner, "dataset": dataset or before.dataset, "model": model or before.model}
        changes |= {"inputs": {**before.inputs, **(inputs or {})}, "ended": None, "failed": "", "updated": now()}
        return _write(path, before, changes)


def touch_run(
    workspace: Path,
    folder: str,
    *,
    dataset: str = "",
    model: str = "",
    exported: str = "",
    failed: str = "",
    now: Callable[[], str] = times.now,
) -> RunRecord | None:
    """Record that the run is active, or why it has `failed`, and the given facts. Returns None if it has no valid record.

    Raises WorkspaceError, StorageError.
    """
    values = {"dataset": dataset, "model": model, "exported": exported}
    return _update(workspace, folder, values, {"failed": failed[:_MAX_FAILED], "updated": now()})


def end_run(workspace: Path, folder: str, *, exported: str = "", now: Callable[[], str] = times.now) -> RunRecord | None:
    """Record that the run has ended, so that it may be pruned. Returns None if it has no valid record.

    Raises WorkspaceError, StorageError.
    """
    moment = now()
    return _update(workspace, folder, {"exported": exported}, {"updated": moment, "ended": moment, "failed": ""})


def drop_empty_run(workspace: Path, folder: str) -> bool:
    """Remove a run's folder that has only the record and reports. Returns whether it did. Raises WorkspaceError, StorageError."""
    texts = (RECORD, *DATASET_REPORTS)
    with lock_run(workspace, folder) as path, disk_errors(path):
        if not path.is_dir() or {entry.name for entry in path.iterdir()} - {*texts, DATASET, MODEL}:
            return False
        mounts = [path / kind for kind in (DATASET, MODEL) if (path / kind).is_dir()]
        if any(any(mount.iterdir()) for mount in mounts):
            return False
        for name in texts:
            (path / name).unlink(missing_ok=True)
        for empty in (*mounts, path):
            empty.rmdir()
        return True


def read_run(folder: Path) -> RunRecord | None:
    """Return the record in a run's folder (a path), or None if it is missing or invalid. Links are not followed."""
    try:
        descriptor = os.open(folder / RECORD, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) or size > _MAX_BYTES:
            return None
        return RunRecord.model_validate_json(os.read(descriptor, _MAX_BYTES))
    except (OSError, ValidationError):
        return None
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def lock_run(workspace: Path, folder: str) -> Iterator[Path]:
    """Yield the path of a run's folder, with its record locked against changes and deletion. Raises WorkspaceError, StorageError."""
    path = run_path(workspace, folder)
    with contextlib.ExitStack() as stack:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(file_lock(path.with_name(f".{path.name}{_LOCK_SUFFIX}")))
        yield path


def _update(workspace: Path, folder: str, values: dict[str, str], changes: dict[str, str]) -> RunRecord | None:
    with lock_run(workspace, folder) as path:
        before = read_run(path)
        if before is None:
            log.warning("the run has no valid record folder=%s", path)
            return None
        return _write(path, before, {**{name: value for name, value in values.items() if value}, **changes})


def _write(path: Path, before: RunRecord, changes: dict[str, Any]) -> RunRecord:
    record = before.model_copy(update={**changes, "earlier": _earlier(before, changes)})
    left_out = {name for name in ("inputs", "earlier", "failed") if not getattr(record, name)}
    write_bytes(path / RECORD, record.model_dump_json(indent=1, exclude=left_out).encode() + b"\n")
    return record


def _earlier(before: RunRecord, changes: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return what the record has of earlier trainings, with what the changes replace."""
    found = {}
    for name in (DATASET, MODEL, "exported"):
        known = dict.fromkeys(before.all_of(name))
        known.pop(changes.get(name) or getattr(before, name), None)
        if known:
            found[name] = tuple(known)[-_MAX_EARLIER:]
    return found


def recorded_findings(*folders: Path) -> list[Finding]:
    """Return the findings in the first of these folders of a run that has a report; none without one."""
    for folder in folders:
        try:
            figures = json.loads(read_plain(folder / FIGURES, _MAX_BYTES, folder))
        except (OSError, StorageError, UnsafeFile, ValueError, RecursionError):  # no report, or one that is not ours
            continue
        return checked_findings(figures.get("findings") if isinstance(figures, dict) else None)
    return []


def checked_findings(found: Any) -> list[Finding]:
    """Return what of a value is a list of findings."""
    return [
        {name: one_line(each[name])[:_MAX_TEXT] for name in ("severity", "name", "text")}
        for each in (found if isinstance(found, list) else [])[:_MAX_FINDINGS]
        if isinstance(each, dict)
        and each.get("severity") in _SEVERITIES
        and all(isinstance(each.get(name), str) for name in ("name", "text"))
    ]


def finding_lines(found: Any) -> list[str]:
    """Return a line for each finding that a reader of figures must know: all but notes."""
    return [f"{each['severity']}: {each['text']}" for each in checked_findings(found) if each["severity"] != "note"]


def finding_names(found: Any) -> list[str]:
    """Return the names of those findings, as marks of a figure."""
    return [each["name"] for each in checked_findings(found) if each["severity"] != "note"]
