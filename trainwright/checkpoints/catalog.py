"""Lists the exports of a run, and keeps the pins that protect some of them from deletion."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from trainwright.api.times import now, parse_time
from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.exported import Export, find_export_in
from trainwright.checkpoints.manifest import MANIFEST
from trainwright.checkpoints.pointers import best_export, latest_export
from trainwright.storage.parallel import for_each
from trainwright.storage.store import Store, change_file, read_if_present

PINS = "pins.json"
NAME = re.compile(r"checkpoint-(0|[1-9][0-9]{0,18})(\.[1-9][0-9]{0,8})?")
"""Of an export in the folder of a run."""
_AT_ONCE = 8
Pins = dict[str, dict[str, str]]
"""By the name of an export: for each reason the time when it was pinned."""


@dataclass(frozen=True)
class ListedExport:
    """An export of a run, and what protects it: `latest`, `best`, or the reasons of its pins."""

    export: Export
    protected_by: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.export.name

    @property
    def created(self) -> datetime:
        """When it was published. Raises CheckpointError for a manifest whose time cannot be read."""
        try:
            return parse_time(self.export.manifest.created)
        except ValueError as error:
            raise CheckpointError(
                f"{self.export.uri}: the manifest's time {self.export.manifest.created!r} is not one"
            ) from error


@dataclass(frozen=True)
class Catalog:
    """The exports of a run, oldest first, and all stored files by key with their sizes, manifests included."""

    store: Store
    exports: tuple[ListedExport, ...]
    files: dict[str, int] = field(repr=False)

    def named(self, name: str) -> ListedExport:
        """Return an export by its name. Raises NoCheckpoint, which lists the names."""
        for each in self.exports:
            if each.name == name:
                return each
        names = ", ".join(each.name for each in self.exports) or "none"
        raise NoCheckpoint(f"{self.store.uri} has no export {name}; exports: {names}")

    def used_keys(self, exports: tuple[ListedExport, ...]) -> set[str]:
        """Return the keys of all files that the exports need, relative to the run's folder."""
        return {each.export.key_in_run(file) for each in exports for file in each.export.manifest.files}


def read_catalog(store: Store) -> Catalog:
    """List the exports in a run's folder of exports. Raises CheckpointError for an invalid manifest, StorageError."""
    files = dict(store.list_files())
    names = [key.removesuffix(f"/{MANIFEST}") for key in files if key.endswith(f"/{MANIFEST}")]
    found = for_each(
        [name for name in names if NAME.fullmatch(name)], lambda name: find_export_in(store.below(name)), at_once=_AT_ONCE
    )
    protection = protection_of(store)
    exports = [ListedExport(each, protection.get(each.name, ())) for each in found if each is not None]
    return Catalog(store, tuple(sorted(exports, key=lambda each: (each.created, each.export.manifest.step))), files)


def pin_export(store: Store, name: str, reason: str) -> None:
    """Protect an export from deletion. Raises NoCheckpoint if there is none, StorageError."""
    if not NAME.fullmatch(name) or store.head(f"{name}/{MANIFEST}") is None:
        raise NoCheckpoint(f"{store.uri} has no export {name}")
    _change_pins(store, lambda pins: {**pins, name: {**pins.get(name, {}), reason: now()}})


def unpin_export(store: Store, name: str, reason: str = "") -> None:
    """Remove a pin, or all pins of an export. Raises StorageError."""

    def without(pins: Pins) -> Pins:
        left = {} if not reason else {each: moment for each, moment in pins.get(name, {}).items() if each != reason}
        others = {each: reasons for each, reasons in pins.items() if each != name}
        return {**others, name: left} if left else others

    _change_pins(store, without)


def read_pins(store: Store) -> Pins:
    """Return the pins of a run's exports. Raises CheckpointError for a file that is not valid, StorageError."""
    return _parse_pins(store, read_if_present(store, PINS))


def protection_of(store: Store) -> dict[str, tuple[str, ...]]:
    """Return what protects exports of a run from deletion, by name: `latest`, `best`, reasons of pins. Raises as `read_pins`."""
    protection: dict[str, tuple[str, ...]] = {}
    for pointer, found in (("latest", latest_export(store)), ("best", best_export(store))):
        if found is not None:
            protection[found[0]] = (*protection.get(found[0], ()), pointer)
    for name, reasons in read_pins(store).items():
        protection[name] = (*protection.get(name, ()), *sorted(reasons))
    return protection


def _change_pins(store: Store, change: Callable[[Pins], Pins]) -> None:
    def change_text(old: bytes | None) -> bytes:
        return json.dumps(change(_parse_pins(store, old)), sort_keys=True, indent=1).encode() + b"\n"

    change_file(store, PINS, change_text)


def _parse_pins(store: Store, content: bytes | None) -> Pins:
    """An invalid file is an error: to ignore it would delete what was pinned."""
    try:
        pins = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        pins = None
    if not isinstance(pins, dict) or not all(isinstance(each, dict) for each in pins.values()):
        raise CheckpointError(f"{store.uri.join(PINS)} is not valid: it must map exports to their pins; repair or remove it")
    return pins
