"""`latest.json` beside the exports names the one with the highest step. It never moves to a lower step or an incomplete export."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from trainwright.checkpoints.manifest import LATEST, MANIFEST, Manifest
from trainwright.storage.errors import NotFound, StorageError
from trainwright.storage.store import Store

_ATTEMPTS = 12
"""For concurrent exports of different steps. An attempt fails only if another export has succeeded meanwhile."""


def update_latest(store: Store, name: str, manifest: Manifest) -> None:
    """Point `latest.json` to the export `name`, unless it names an existing export of a later step. Raises StorageError."""
    pointer = {"checkpoint": name, "step": manifest.step, "manifest": manifest.digest}
    text = json.dumps(pointer, sort_keys=True).encode() + b"\n"
    for attempt in range(_ATTEMPTS):
        old = _read_pointer(store)
        current = _pointer(old)
        if current == pointer:
            return
        if current is not None and current["step"] > manifest.step and _is_published(store, current["checkpoint"]):
            return
        if store.compare_and_swap(LATEST, old, text):
            return
        time.sleep(random.uniform(0, min(1.0, 0.05 * 2**attempt)))
    raise StorageError(
        f"{store.uri.join(LATEST)}: changed by other exports at every attempt; the export exists, run it again to update the pointer"
    )


def latest_export(store: Store) -> tuple[str, str] | None:
    """Return name and manifest digest (empty if not recorded) of the latest export, or None."""
    pointer = _pointer(_read_pointer(store))
    return None if pointer is None else (pointer["checkpoint"], str(pointer.get("manifest") or ""))


def _read_pointer(store: Store) -> bytes | None:
    try:
        return store.read(LATEST)
    except NotFound:
        return None


def _pointer(content: bytes | None) -> dict[str, Any] | None:
    try:
        pointer: Any = json.loads(content or b"null")
    except (ValueError, RecursionError):
        return None
    match pointer:
        case {"step": int(), "checkpoint": str()}:
            return dict(pointer)
        case _:
            return None


def _is_published(store: Store, name: str) -> bool:
    try:
        return store.head(f"{name}/{MANIFEST}") is not None
    except StorageError:  # a name outside of the store
        return False
