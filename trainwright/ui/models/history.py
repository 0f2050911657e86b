"""The history of a training from the files in its run's folder, as series for a chart, and the losses of its evaluations.

A series is thinned without losing its extremes, its ends, or where it was not finite.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwright.checkpoints.formats.format import numbered_step
from trainwright.checkpoints.formats.whole_files import STATE
from trainwright.checkpoints.training_history import (
    METRICS,
    REPORT,
    STEP,
    Logged,
    LogHistory,
    event_history,
    logged_in,
    read_metrics,
)
from trainwright.storage.transfer import disk_errors
from trainwright.ui.call import Json
from trainwright.ui.models.foreign_json import read_json_inside, shown_text
from trainwright.workspace.layout import OUTPUT, containing_run, step_path

_EVENTS = "events.out.tfevents."
_MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Bytes of event files that are read: they are parsed in Python, a few megabytes a second."""
_MAX_CHECKPOINTS = 3
"""Newest checkpoints whose state is looked for: the newest may still be being written."""
_MAX_NAMES = 20_000
_MAX_KNOWN = 32
_Signature = tuple[tuple[str, int, int], ...]
MAX_POINTS = 2_000
MAX_SERIES = 200
_KEPT = 3
"""Points of a bucket that are kept at most: the lowest, the highest, and one that is not finite."""
_LARGEST_STEP = 2**53
Point = tuple[int, float | None]
"""A step, and the value there; None if that is not finite."""


def read_history(workspace: Path, folder: str) -> Json:
    """Return the series of the training that writes to `folder`, `runs/NAME` or a folder below it.

    `axis` is what the steps are: `step`, or `report` of a training that reports none. `source` is where they are from, and `notes`
    say what was not read. Raises WorkspaceError, StorageError.
    """
    place = step_path(workspace, folder)
    with disk_errors(place):
        metrics = read_metrics(place) if place.is_dir() else []
    count = REPORT if metrics and not any(STEP in entry for entry in metrics) else STEP
    sources = [
        Logged(METRICS, count, [entry for entry in metrics if count in entry]),
        Logged(STATE, STEP, _logged(workspace, folder)),
    ]
    notes: list[str] = []
    if not any("loss" in entry for source in sources for entry in source.entries):
        sources.append(Logged("TensorBoard's event files", STEP, _events(place / OUTPUT, notes)))
    best = max(sources, key=lambda source: source.fullness)
    return {
        "series": series_of(best.entries, best.counted),
        "axis": best.counted,
        "source": best.source if best.entries else "",
        "notes": notes,
    }


def _logged(workspace: Path, folder: str) -> LogHistory:
    run, below = containing_run(folder), folder.split("/")[2:]
    for name in checkpoint_names(step_path(workspace, folder) / OUTPUT)[:_MAX_CHECKPOINTS]:
        state: dict[str, Any] = read_json_inside(workspace, run, "/".join((*below, OUTPUT, name, STATE))) or {}
        if entries := logged_in(state):
            return entries
    return []


def _events(output: Path, notes: list[str]) -> LogHistory:
    if output.is_symlink():  # it may lead out of the folders that the page may read
        return []
    size = sum(size for _, size in event_files(output))
    if size > _MAX_EVENT_BYTES:
        notes.append(f"TensorBoard's event files have {size / 1e6:.0f} MB and are not read here: open them in TensorBoard")
        return []
    with disk_errors(output):
        return event_history(output)


class Histories:
    """Remembers the histories that were read last, as long as their files are as they were: a page asks again every few seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[Path, str], tuple[_Signature, Json]] = {}

    def read(self, workspace: Path, folder: str) -> Json:
        """Return the answer of `read_history`. Raises WorkspaceError, StorageError."""
        key, signature = (workspace, folder), _signature(workspace, folder)
        with self._lock:
            known = self._known.get(key)
        if known is not None and known[0] == signature:
            return known[1]
        found = read_history(workspace, folder)
        with self._lock:
            self._known.pop(key, None)
            while len(self._known) >= _MAX_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[key] = (signature, found)
        return found


def _signature(workspace: Path, folder: str) -> _Signature:
    """Return what changes whenever a file of the history does. Taken before they are read, so that no change is missed."""
    place = step_path(workspace, folder)
    output = place / OUTPUT
    states = [output / name / STATE for name in checkpoint_names(output)[:_MAX_CHECKPOINTS]]
    events = [] if output.is_symlink() else [path for path, _ in event_files(output)]
    found = []
    for path in (place / METRICS, *states, *events):
        try:
            status = os.stat(path, follow_symlinks=False)
        except OSError:  # not there, or removed meanwhile
            continue
        found.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(found)


def checkpoint_names(output: Path) -> list[str]:
    """Return the names of the numbered checkpoint folders in an output folder, the newest step first; links are left out."""
    found: list[tuple[int, str]] = []
    try:
        with os.scandir(output) as entries:
            for entry in entries:
                if len(found) == _MAX_NAMES:
                    break
                if entry.is_dir(follow_symlinks=False) and (step := numbered_step(Path(entry.name))) is not None:
                    found.append((step, entry.name))
    except OSError:  # no output yet, or none that may be read
        return []
    return [name for _, name in sorted(found, reverse=True)]


def event_files(output: Path) -> list[tuple[Path, int]]:
    """Return TensorBoard's event files below an output folder with their sizes, without following links; at most 1,000."""
    found: list[tuple[Path, int]] = []
    for parent, _, names in os.walk(output):
        for name in sorted(names):
            path = Path(parent) / name
            if name.startswith(_EVENTS) and not path.is_symlink():
                try:
                    found.append((path, path.stat().st_size))
                except OSError:  # removed meanwhile
                    continue
            if len(found) == 1_000:
                return found
    return found


def series_of(entries: Iterable[Mapping[str, Any]], count: str) -> dict[str, list[Point]]:
    """Return the series in the entries of a log history by name, thinned; `count` names the field with the step.

    Of several values for one step the last counts: a training that was resumed repeats some. Fields that are no numbers are left out.
    """
    found: dict[str, dict[int, float | None]] = {}
    for entry in entries:
        step = entry.get(count)
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < _LARGEST_STEP:
            continue
        for name, value in entry.items():
            if name == count or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if name not in found and len(found) == MAX_SERIES:
                continue
            found.setdefault(name, {})[step] = _finite(value)
    return {shown_text(name, 200): thinned(sorted(values.items())) for name, values in found.items()}


def _finite(value: float) -> float | None:
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond the range of floats
        return None


def thinned(points: Sequence[Point], limit: int = MAX_POINTS) -> list[Point]:
    """Return at most `limit` of the points, in their order: the first, the last, and of each part the extremes.

    A part with a value that is not finite keeps one of those: the chart has a gap there.
    """
    if len(points) <= limit:
        return list(points)
    kept_each = _KEPT if any(value is None for _, value in points) else _KEPT - 1
    buckets, inner = (limit - 2) // kept_each, len(points) - 2
    kept = {0, len(points) - 1}
    for bucket in range(buckets):
        start, end = 1 + bucket * inner // buckets, 1 + (bucket + 1) * inner // buckets
        finite = [at for at in range(start, end) if points[at][1] is not None]
        gaps = [at for at in range(start, end) if points[at][1] is None]
        kept.update(gaps[:1])
        if finite:
            kept |= {min(finite, key=lambda at: points[at][1] or 0.0), max(finite, key=lambda at: points[at][1] or 0.0)}
    return [points[at] for at in sorted(kept)]
