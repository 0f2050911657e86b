"""`latest.json` and `best.json` beside a run's exports name the one that was published last, and the one with the best metric.

Both are changed only if they are as they were read, and never name an export that is not published.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trainwright.api.times import parse_time
from trainwright.checkpoints.manifest import BEST, LATEST, MANIFEST, Manifest
from trainwright.storage.store import Store, change_file, read_if_present

Pointer = dict[str, Any]


@dataclass(frozen=True)
class Metric:
    """The metric that chooses the best export, as logged by training, and whether more is better."""

    name: str = "eval_loss"
    greater_is_better: bool = False

    def is_better(self, value: float, than: float) -> bool:
        return value > than if self.greater_is_better else value < than


def publication_time(store: Store) -> str:
    """Return the time for a manifest that is published now: later than that of the latest export, whatever the clocks say."""
    moment = datetime.now(UTC)
    latest = _pointer(read_if_present(store, LATEST)) or {}
    with contextlib.suppress(ValueError):
        moment = max(moment, parse_time(str(latest.get("created") or "")) + timedelta(microseconds=1))
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def update_latest(store: Store, name: str, manifest: Manifest) -> None:
    """Point `latest.json` to the export `name`, unless it names an existing one that was published later, or that can be resumed
    from while this one cannot. Raises StorageError.
    """
    pointer = {**_describe(name, manifest), "created": manifest.created, "resumable": manifest.resumable}

    def is_replaced(current: Pointer) -> bool:
        if current.get("resumable") is not manifest.resumable:
            return manifest.resumable
        return (_created(current), current["step"]) < (_created(pointer), manifest.step)

    _update(store, LATEST, pointer, is_replaced)


def update_best(store: Store, name: str, manifest: Manifest, metric: Metric) -> None:
    """Point `best.json` to the export `name` if it has the metric, and no existing export is better. Raises StorageError."""
    value = manifest.metrics.get(metric.name)
    if value is None:
        return
    chosen_by = {"metric": metric.name, "greater_is_better": metric.greater_is_better}
    pointer = {**_describe(name, manifest), **chosen_by, "value": value}

    def is_replaced(current: Pointer) -> bool:
        if {field: current.get(field) for field in chosen_by} != chosen_by or not isinstance(current.get("value"), int | float):
            return True
        return metric.is_better(value, current["value"])

    _update(store, BEST, pointer, is_replaced)


def latest_export(store: Store) -> tuple[str, str] | None:
    """Return name and manifest digest of the latest export, or None."""
    return _named_by(store, LATEST)


def best_export(store: Store) -> tuple[str, str] | None:
    """Return name and manifest digest of the export with the best metric, or None."""
    return _named_by(store, BEST)


def _named_by(store: Store, key: str) -> tuple[str, str] | None:
    pointer = _pointer(read_if_present(store, key))
    return None if pointer is None else (pointer["checkpoint"], pointer["manifest"])


def _update(store: Store, key: str, pointer: Pointer, is_replaced: Callable[[Pointer], bool]) -> None:
    text = json.dumps(pointer, sort_keys=True, allow_nan=False).encode() + b"\n"

    def change(old: bytes | None) -> bytes | None:
        current = _pointer(old)
        if current == pointer:
            return None
        if current is not None and not is_replaced(current) and _is_published(store, current["checkpoint"]):
            return None
        return text

    change_file(store, key, change, advice="the export exists, run it again to update the pointer")


def _describe(name: str, manifest: Manifest) -> Pointer:
    return {"checkpoint": name, "step": manifest.step, "manifest": manifest.digest}


def _created(pointer: Pointer) -> datetime:
    """When the export was published; a pointer with an unreadable time counts as the oldest."""
    try:
        return parse_time(str(pointer.get("created") or ""))
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


def _pointer(content: bytes | None) -> Pointer | None:
    try:
        pointer: Any = json.loads(content or b"null")
    except (ValueError, RecursionError):
        return None
    match pointer:
        case {"step": int(), "manifest": str(), "checkpoint": str(name)} if name not in ("", ".", "..") and "/" not in name:
            return dict(pointer)
        case _:
            return None


def _is_published(store: Store, name: str) -> bool:
    return store.head(f"{name}/{MANIFEST}") is not None
