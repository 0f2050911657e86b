"""How many finished runs a workspace keeps, and the deletion of the others and of prepared inputs that nobody uses any more.

In doubt a folder stays: what is live, unknown, a link, or still changing is never touched.
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
from trainwright.storage.locks import NoLocks, exclusive, lock
from trainwright.storage.transfer import disk_errors
from trainwright.workspace.deletion import hide, remove_hidden, remove_tree
from trainwright.workspace.errors import WorkspaceError
from trainwright.workspace.index import forget_digests
from trainwright.workspace.layout import KINDS, RUNS, Kind, run_name, run_of, store_path
from trainwright.workspace.prepared import lock_of
from trainwright.workspace.run_record import RunRecord, changing, read_run

log = logging.getLogger(__name__)
IDLE_SECONDS = 24 * 3600.0
"""A run without an end whose files have not changed for that long is taken for one that was killed."""
_DIGEST_NAME = re.compile(r"[0-9a-f]{64}")
_SCRATCH_NAME = re.compile(r"\.[0-9a-f]{12}-(?:[0-9a-f]{12}|gone)\..+")
"""What `storage.scratch` names its folders."""


@dataclass(frozen=True)
class _Run:
    name: str
    record: RunRecord | None
    active: float
    """Seconds since the epoch of its last sign of life."""

    @property
    def ended(self) -> bool:
        return self.record is not None and self.record.ended is not None


def parse_retention(text: str) -> int | None:
    """How many finished runs to keep: `keep=N` or `N`; None for `always`, which keeps all.

    Raises ValueError naming the text for anything else.
    """
    said = text.strip()
    if said == "always":
        return None
    match = re.fullmatch(r"(?:keep=)?([0-9]{1,9})", said)
    if match is None:
        raise ValueError(f"retention: {text!r} is not understood; expected always, or keep=N with a number of runs, as in keep=5")
    return int(match[1])


def prune_runs(
    workspace: Path,
    *,
    keep: int,
    current: str,
    live: Collection[str],
    cluster_asked: bool,
    now: float,
    idle_seconds: float = IDLE_SECONDS,
) -> list[str]:
    """Delete the folders of runs beyond the newest `keep` that have finished, and prepared inputs that no run refers to.

    `current` and `live` are folders of runs (`runs/NAME`) or below them: the one that asks, and those with TrainJobs that
    the cluster says are unfinished. A run without an end is deleted only if it has been idle for `idle_seconds`, and the
    cluster was asked. `now` is in seconds since the epoch. Returns the names of the folders that were deleted.
    Raises WorkspaceError for a name that is none, StorageError.
    """
    spared = {run_of(current), *map(run_of, live)}
    runs = workspace / RUNS
    if runs.is_symlink() or not runs.is_dir():
        log.info("there are no runs to prune folder=%s", runs)
        return []
    with disk_errors(runs):
        remove_hidden(runs)
        deleted = []
        for run in _beyond(_runs(runs), keep, spared, now - idle_seconds if cluster_asked else None):
            if _delete(workspace, run, None if run.ended else now - idle_seconds):
                deleted.append(run.name)
        for kind in KINDS:
            _prune_prepared(workspace, kind, now - idle_seconds)
    return deleted


def _beyond(runs: list[_Run], keep: int, spared: set[str], idle_since: float | None) -> list[_Run]:
    """Those to delete: older than the newest `keep` that have ended. One that was killed takes no place of those."""
    ended, beyond = 0, []
    for run in sorted(runs, key=lambda run: (_moment(run), run.name), reverse=True):
        if run.record is None or run.name in spared:
            continue
        abandoned = idle_since is not None and run.active < idle_since
        if ended >= keep and (run.ended or abandoned):
            beyond.append(run)
        ended += run.ended
    return beyond


def _moment(run: _Run) -> float:
    if run.record is None or run.record.ended is None:
        return run.active
    return parse_time(run.record.ended).timestamp()


def _runs(runs: Path) -> list[_Run]:
    found = []
    for path in sorted(runs.iterdir()):
        if path.name.startswith(".") or path.is_symlink() or not path.is_dir():
            continue
        with contextlib.suppress(WorkspaceError):  # a folder of somebody else
            found.append(_looked_at(path))
    return found


def _looked_at(path: Path) -> _Run:
    record = read_run(path)
    updated = 0.0 if record is None else parse_time(record.updated).timestamp()
    return _Run(run_name(path.name), record, max(updated, _last_change(path)))


def _delete(workspace: Path, run: _Run, idle_since: float | None) -> bool:
    """Unless it has come to life since we looked. `idle_since` is that of a run without an end."""
    with changing(workspace, run.name) as path:
        if not path.is_dir():
            return False
        again = _looked_at(path)
        if again.record is None or again.ended != run.ended or (idle_since is not None and again.active >= idle_since):
            return False
        hidden = _hidden(path)
    if hidden is None:
        return False
    remove_tree(hidden)
    log.info("the folder of a run was deleted folder=%s run=%s", path, again.record.run)
    return True


def _prune_prepared(workspace: Path, kind: Kind, idle_since: float) -> None:
    """Remove those that no record refers to and nobody has asked for lately; what killed processes left, too."""
    store = store_path(workspace, kind)
    if store.is_symlink() or not store.is_dir():
        return
    remove_hidden(store)
    _remove_scratch(store, idle_since)
    idle = [path for path in sorted(store.iterdir()) if _is_prepared(path) and path.stat().st_mtime < idle_since]
    used = _used(workspace, kind, idle_since) if idle else set()
    if used is None:
        log.info("prepared inputs are kept: a run without a record is at work folder=%s", store)
        return
    gone = {f"sha256:{path.name}" for path in idle if f"sha256:{path.name}" not in used and _remove(path, idle_since)}
    if gone:
        forget_digests(workspace, kind, gone)
        log.info("prepared inputs that no run uses were deleted kind=%s digests=%s", kind, " ".join(sorted(gone)))


def _used(workspace: Path, kind: Kind, idle_since: float) -> set[str] | None:
    """Digests that records refer to; None where a run that nothing is known of may use any."""
    used = set()
    for run in _runs(workspace / RUNS):
        if run.record is not None:
            used.add(run.record.dataset if kind == "dataset" else run.record.model)
        elif run.active >= idle_since:
            return None
    return used


def _remove(path: Path, idle_since: float) -> bool:
    with exclusive(lock_of(path)):
        if not _is_prepared(path) or path.stat().st_mtime >= idle_since:
            return False
        hidden = _hidden(path)
    if hidden is None:
        return False
    remove_tree(hidden)
    return True


def _hidden(path: Path) -> Path | None:
    try:
        return hide(path)
    except OSError as error:  # one folder that is not ours to delete keeps no other
        log.warning("a folder cannot be deleted path=%s error=%s", path, error)
        return None


def _remove_scratch(store: Path, idle_since: float) -> None:
    """Of a process that was killed, and whose source nobody has asked for again."""
    for path in sorted(store.iterdir()):
        if not _SCRATCH_NAME.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
            continue
        with contextlib.suppress(OSError):
            if _last_change(path) >= idle_since:
                continue
            try:
                descriptor = lock(path / "lock")
            except NoLocks:
                remove_tree(hide(path))
                continue
            if descriptor is not None:
                with contextlib.closing(os.fdopen(descriptor, "rb")):
                    remove_tree(hide(path))


def _is_prepared(path: Path) -> bool:
    return _DIGEST_NAME.fullmatch(path.name) is not None and not path.is_symlink() and path.is_dir()


def _last_change(folder: Path) -> float:
    """The newest time of a folder and of all that is in it, without following links."""
    newest = folder.lstat().st_mtime
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                newest = max(newest, os.lstat(os.path.join(place, name)).st_mtime)
    return newest
