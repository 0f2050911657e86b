"""`latest.json` beside the exports: names the export with the highest step. It never goes back, and names only what is published."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from trainwright.checkpoints.manifest import LATEST, MANIFEST, Manifest
from trainwright.storage.errors import NotThere, StorageError
from trainwright.storage.store import Store

_ATTEMPTS = 12
"""Exporters of different steps that publish at once; each failed attempt means that another one got on."""


def point_latest(store: Store, name: str, manifest: Manifest) -> None:
    """Let it name the export `name`, unless it names one of a later step that is still there. Raises StorageError."""
    pointer = {"checkpoint": name, "step": manifest.step, "manifest": manifest.digest}
    text = json.dumps(pointer, sort_keys=True).encode() + b"\n"
    for attempt in range(_ATTEMPTS):
        old = _content(store)
        current = _pointer(old)
        if current == pointer:
            return
        if current is not None and current["step"] > manifest.step and _is_published(store, current["checkpoint"]):
            return
        if store.swap(LATEST, old, text):
            return
        time.sleep(random.uniform(0, min(1.0, 0.05 * 2**attempt)))
    raise StorageError(
        f"{store.uri.join(LATEST)}: others have changed it at every attempt; run the export again, it is there already"
    )


def latest_export(store: Store) -> tuple[str, str] | None:
    """Name and manifest digest of the export that the pointer names (the digest empty where it says none), or None."""
    pointer = _pointer(_content(store))
    return None if pointer is None else (pointer["checkpoint"], str(pointer.get("manifest") or ""))


def _content(store: Store) -> bytes | None:
    try:
        return store.read(LATEST)
    except NotThere:
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
    except StorageError:  # a name that leads out of the store
        return False
