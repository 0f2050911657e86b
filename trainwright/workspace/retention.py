"""Deletes finished runs beyond a limit, and prepared inputs that no run uses any more.

If in doubt, a folder is kept: folders that are in use, unknown, links or still changing are never deleted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from trainwright.api.times import parse_time
from trainwright.flock import LocksNotSupported
from trainwright.storage.locks import file_lock, lock_path, try_lock_file
from trainwright.storage.transfer import disk_errors
from trainwright.workspace.deletion import mark_deleted, purge_deleted, remove_tree
from trainwright.workspace.layout import KINDS, RUNS, Kind, WorkspaceError, containing_run, index_path, run_name, store_path
from trainwright.workspace.prepared import remove_entries
from trainwright.workspace.run_record import RunRecord, lock_run, read_run

log = logging.getLogger(__name__)
IDLE_SECONDS = 24 * 3600.0
"""An unfinished run whose files have not changed for this time counts as killed."""
_DIGEST_NAME = re.compile(r"[0-9a-f]{64}")
_SCRATCH_NAME = re.compile(r"\.[0-9a-f]{12}-(?:[0-9a-f]{12}|gone)\..+")
"""The names of the folders of `storage.scratch`."""


@dataclass(frozen=True)
class _Run:
    name: str
    record: RunRecord | None
    last_active: float
    """Time of the last activity, in seconds since the epoch."""

    @property
    def has_ended(self) -> bool:
        return self.record is not None and self.record.ended is not None


def parse_retention(text: str) -> int | None:
    """Parse the number of finished runs to keep: `keep=N` or `N`; None for `always`, which keeps all.

    Raises ValueError, which quotes the text, for anything else.
    """
    stripped = text.strip()
    if stripped == "always":
        return None
    match = re.fullmatch(r"(?:keep=)?([0-9]{1,9})", stripped)
    if match is None:
        raise ValueError(f"retention: {text!r} is invalid; expected always, or keep=N with a number of runs, as in keep=5")
    return int(match[1])


def prune_runs(
    workspace: Path,
    *,
    keep: int,
    current: str,
    live: Collection[str],
    is_cluster_state_known: bool,
    now: float,
    idle_seconds: float = IDLE_SECONDS,
) -> list[str]:
    """Delete the folders of runs beyond the newest `keep` finished ones, and prepared inputs that no run refers to.

    `current` and `live` are run folders (`runs/NAME`) or below them: the caller's, and those with unfinished TrainJobs in the
    cluster. An unfinished run is deleted only if it has been idle for `idle_seconds` and `is_cluster_state_known`.
    `now` is in seconds since the epoch. Returns the names of the deleted folders.
    Raises WorkspaceError for an invalid name, StorageError.
    """
    protected = {containing_run(current), *map(containing_run, live)}
    runs = workspace / RUNS
    if runs.is_symlink() or not runs.is_dir():
        log.info("there are no runs to prune folder=%s", runs)
        return []
    with disk_errors(runs):
        purge_deleted(runs)
        deleted = []
        for run in _select_expired(_runs(runs), keep, protected, now - idle_seconds if is_cluster_state_known else None):
            if _delete(workspace, run, None if run.has_ended else now - idle_seconds):
                deleted.append(run.name)
        for kind in KINDS:
            _prune_prepared(workspace, kind, now - idle_seconds)
    return deleted


def _select_expired(runs: list[_Run], keep: int, protected: set[str], idle_since: float | None) -> list[_Run]:
    """Return the runs to delete: those older than the newest `keep` ended ones. Killed runs do not count as ended."""
    ended, expired = 0, []
    for run in sorted(runs, key=lambda run: (_ended_at(run), run.name), reverse=True):
        if run.record is None or run.name in protected:
            continue
        is_abandoned = idle_since is not None and run.last_active < idle_since
        if ended >= keep and (run.has_ended or is_abandoned):
            expired.append(run)
        ended += run.has_ended
    return expired


def _ended_at(run: _Run) -> float:
    if run.record is None or run.record.ended is None:
        return run.last_active
    return parse_time(run.record.ended).timestamp()


def _runs(runs: Path) -> list[_Run]:
    found = []
    for path in sorted(runs.iterdir()):
        if path.name.startswith(".") or path.is_symlink() or not path.is_dir():
            continue
        with contextlib.suppress(WorkspaceError, FileNotFoundError):  # not a run folder, or deleted by another run meanwhile
            found.append(_inspect(path))
    return found


def _inspect(path: Path) -> _Run:
    record = read_run(path)
    updated = 0.0 if record is None else parse_time(record.updated).timestamp()
    return _Run(run_name(path.name), record, max(updated, _last_change(path)))


def _delete(workspace: Path, run: _Run, idle_since: float | None) -> bool:
    """Delete a run unless it has become active since it was selected. `idle_since` is for unfinished runs, else None."""
    with lock_run(workspace, run.name) as path:
        if not path.is_dir():
            return False
        current = _inspect(path)
        if (
            current.record is None
            or current.has_ended != run.has_ended
            or (idle_since is not None and current.last_active >= idle_since)
        ):
            return False
        hidden = _mark_deleted(path)
    if hidden is None:
        return False
    remove_tree(hidden)
    log.info("run folder deleted folder=%s run=%s", path, current.record.run)
    return True


def _prune_prepared(workspace: Path, kind: Kind, idle_since: float) -> None:
    """Remove prepared folders that no record refers to and no run has used recently, and leftovers of killed processes."""
    try:
        store = store_path(workspace, kind)
        index_path(workspace, kind)
    except WorkspaceError as error:
        log.warning("prepared inputs are not pruned reason=%s", error)
        return
    if not store.is_dir():
        return
    purge_deleted(store)
    _remove_scratch(store, idle_since)
    idle = [path for path in sorted(store.iterdir()) if _is_prepared(path) and _is_idle(path, idle_since)]
    used = _used(workspace, kind, idle_since) if idle else set()
    if used is None:
        log.info("prepared inputs are kept, since a run without a record is active folder=%s", store)
        return
    removed = {f"sha256:{path.name}" for path in idle if f"sha256:{path.name}" not in used and _remove(path, idle_since)}
    if removed:
        remove_entries(workspace, kind, removed)
        log.info("unused prepared inputs deleted kind=%s digests=%s", kind, " ".join(sorted(removed)))


def _used(workspace: Path, kind: Kind, idle_since: float) -> set[str] | None:
    """Return the digests in run records; None if an active run without a record may use any."""
    used = set()
    for run in _runs(workspace / RUNS):
        if run.record is not None:
            all_of = run.record.all_of(kind)
            used.update(all_of if run.record.ended is None else all_of[-1:])  # another training of an active run may use one
        elif run.last_active >= idle_since:
            return None
    return used


def _remove(path: Path, idle_since: float) -> bool:
    with file_lock(lock_path(path)):
        if not _is_prepared(path) or not _is_idle(path, idle_since):
            return False
        hidden = _mark_deleted(path)
    if hidden is None:
        return False
    remove_tree(hidden)
    return True


def _mark_deleted(path: Path) -> Path | None:
    try:
        return mark_deleted(path)
    except OSError as error:  # one folder without permission does not prevent the deletion of others
        log.warning("a folder cannot be deleted path=%s error=%s", path, error)
        return None


def _remove_scratch(store: Path, idle_since: float) -> None:
    """Remove scratch folders of killed processes that no later process has resumed."""
    for path in sorted(store.iterdir()):
        if not _SCRATCH_NAME.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
            continue
        with contextlib.suppress(OSError):
            if _last_change(path) >= idle_since:
                continue
            try:
                descriptor = try_lock_file(path / "lock")
            except LocksNotSupported:
                remove_tree(mark_deleted(path))
                continue
            if descriptor is not None:
                with contextlib.closing(os.fdopen(descriptor, "rb")):
                    remove_tree(mark_deleted(path))


def _is_prepared(path: Path) -> bool:
    return _DIGEST_NAME.fullmatch(path.name) is not None and not path.is_symlink() and path.is_dir()


def _is_idle(path: Path, idle_since: float) -> bool:
    try:
        return path.stat().st_mtime < idle_since
    except FileNotFoundError:  # deleted by another run meanwhile
        return False


def _last_change(folder: Path) -> float:
    """Return the newest modification time of a folder and its contents, without following links."""
    newest = folder.lstat().st_mtime
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                newest = max(newest, os.lstat(os.path.join(parent, name)).st_mtime)
    return newest
