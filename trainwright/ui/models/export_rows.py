"""What is in a folder of exports, page by page: runs and aliases in the folder of all, exports in that of a run.

An alias, as `champion`, names an export and has named others, with figures and reasons. An export that cannot be read does not hide
the others. A manifest that others have written may have any size: small files of stores are read whole, and no more than their
limit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict, TypeVar

from pydantic import ValidationError

from trainwright.checkpoints.catalog import NAME, PINS, protection_of
from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.exported import Export
from trainwright.checkpoints.manifest import BEST, LATEST, MANIFEST, Manifest
from trainwright.checkpoints.promotion import CHALLENGER, CHAMPION, AliasRecord, Promotion
from trainwright.checkpoints.registries.register import REGISTERED_IN
from trainwright.jobs.request.invalid_settings import words_of
from trainwright.storage.errors import NotFound, StorageError
from trainwright.storage.parallel import for_each
from trainwright.storage.store import Store
from trainwright.ui.call import Json
from trainwright.ui.models.evaluations import EvaluatedExports
from trainwright.ui.models.foreign_json import shown_figures, shown_number, shown_text

PAGE = 50
MAX_NAMES = 20_000
"""Names of a folder that are read."""
_AT_ONCE = 8
Item = TypeVar("Item")
_NAME = re.compile(r"([a-z][a-z0-9-]{0,62})\.json")
_OTHERS = (LATEST, BEST, "pins.json")
_MAX_ALIASES, _MAX_HISTORY = 50, 200
MAX_MANIFEST = 32 * 1024 * 1024
"""Bytes: about a hundred thousand files."""
MAX_RECORD = 4 * 1024 * 1024
"""Bytes of other records."""


class Names(NamedTuple):
    """A page of names, and where the next one begins; "" if there is none."""

    names: list[str]
    next: str


def read_folder(store: Store, after: str, aliases: Callable[[], list[ShownAlias]], evaluated: EvaluatedExports) -> Json:
    """Return a page of a folder: of a `root` its runs and aliases, of a `run` its exports, newest first; or that it is an `export`.

    `after` is the `next` of the page before. `aliases` returns those of the folder above a run's. Runs have the metrics of their
    latest export. Raises StorageError.
    """
    found = store.list_folder(MAX_NAMES)
    uri, cut = shown_text(store.uri), found.is_cut
    if MANIFEST in found.files:
        return {"kind": "export", "uri": uri}
    exports = [name for name in found.folders if NAME.fullmatch(name)]
    if exports:
        rows = _exports(store, exports, after, aliases(), found.files, evaluated)
        return {"kind": "run", "uri": uri, "cut": cut, "total": len(exports), **rows}
    runs = [name for name in found.folders if not name.startswith(".")]
    page = _page(runs, after)
    return {
        "kind": "root",
        "uri": uri,
        "cut": cut,
        "total": len(runs),
        "aliases": [] if after else read_aliases(store, found.files),
        "runs": for_each(page.names, lambda name: _run(store.below(name), name, evaluated), at_once=_AT_ONCE),
        "next": page.next,
    }


def _exports(
    store: Store, names: list[str], after: str, aliases: list[ShownAlias], files: dict[str, int], evaluated: EvaluatedExports
) -> Json:
    page = _page(sorted(names, key=order_of, reverse=True), after)
    protection, problem = protection_shown(store, files)

    def read(name: str) -> Json:
        try:
            export = read_small_export(store.below(name))
            row = export_row(export, protection.get(name, ()), aliases)
            return {**row, "evaluation": evaluated.loss_of(export.manifest.digest)}
        except (CheckpointError, StorageError) as error:
            return {"name": name, "uri": shown_text(store.uri.join(name)), "problem": shown_text(error)}

    rows = for_each(page.names, read, at_once=_AT_ONCE)
    return {"exports": rows, "problem": problem, "aliases": [*aliases], "next": page.next}


def _page(names: list[str], after: str) -> Names:
    start = names.index(after) + 1 if after in names else 0
    page = names[start : start + PAGE]
    return Names(page, page[-1] if start + PAGE < len(names) else "")


def _run(store: Store, name: str, evaluated: EvaluatedExports) -> Json:
    row: Json = {"name": shown_text(name, 300), "uri": shown_text(store.uri), "latest": None, "best": None}
    row |= {"metrics": {}, "evaluation": None, "problem": ""}
    try:
        row |= {"latest": _pointer(store, LATEST), "best": _pointer(store, BEST)}
        latest = str((row["latest"] or {}).get("checkpoint") or "")
        if NAME.fullmatch(latest):
            manifest = read_small_export(store.below(latest)).manifest
            row |= {"metrics": shown_figures(dict(manifest.metrics), 100), "evaluation": evaluated.loss_of(manifest.digest)}
    except (CheckpointError, StorageError) as error:
        return {**row, "problem": shown_text(error)}
    return row


def _pointer(store: Store, key: str) -> Json | None:
    content = read_small(store, key)
    try:
        pointer: Any = json.loads(content or b"null")
    except (ValueError, RecursionError):  # not a pointer of ours: shown as if there were none
        return None
    return shown_figures(pointer, 12) if isinstance(pointer, dict) else None


def export_row(export: Export, protected_by: tuple[str, ...], aliases: list[ShownAlias]) -> Json:
    """Return an export as a row of a list."""
    manifest = export.manifest
    return {
        "name": shown_text(export.name, 200),
        "uri": shown_text(export.uri),
        "step": shown_number(manifest.step),
        "created": shown_text(manifest.created, 64),
        "bytes": shown_number(manifest.size),
        "files": len(manifest.files),
        "digest": manifest.digest,
        "format": shown_text(manifest.format, 100),
        "resumable": manifest.resumable,
        "source": shown_text(manifest.source, 300),
        "supersedes": shown_text(manifest.supersedes, 200),
        "metrics": shown_figures(dict(manifest.metrics), 100),
        "protectedBy": [shown_text(each, 300) for each in protected_by[:50]],
        "registered": [
            shown_text(each.removeprefix(REGISTERED_IN), 300) for each in protected_by if each.startswith(REGISTERED_IN)
        ],
        "aliases": aliases_naming(aliases, manifest.digest),
        "problem": "",
    }


def protection_shown(store: Store, files: dict[str, int]) -> tuple[dict[str, tuple[str, ...]], str]:
    """Return what protects the exports of a run, by name, or why that cannot be read. `files` are those in the run's folder."""
    # written by others: no server memory is spent on it
    if large := [name for name in (LATEST, BEST, PINS) if files.get(name, 0) > MAX_RECORD]:
        return {}, f"{', '.join(large)} of {store.uri} is larger than {MAX_RECORD} bytes, and is not read"
    try:
        return protection_of(store), ""
    except (CheckpointError, StorageError) as error:
        return {}, shown_text(error)


def order_of(name: str) -> tuple[int, int]:
    """Return the step and the number in the name of an export, to sort by."""
    step, _, number = name.partition("-")[2].partition(".")
    return int(step), int(number or 0)


class ShownAlias(TypedDict):
    """`current` is None if there is no such record, or with a `problem`. `more` is the number of older entries that are left out."""

    name: str
    current: Json | None
    history: list[Json]
    more: int
    canRollBack: bool
    problem: str


def read_aliases(root: Store, files: dict[str, int]) -> list[ShownAlias]:
    """Return the aliases among the `files` of a folder of exports; champion and challenger come first, and always.

    One that cannot be read has a problem in place of its record.
    """
    found = [match[1] for name in files if name not in _OTHERS and (match := _NAME.fullmatch(name))]
    names = dict.fromkeys((CHAMPION, CHALLENGER, *found[:_MAX_ALIASES]))
    return [read_alias(root, name) for name in names if name in found or name in (CHAMPION, CHALLENGER)]


def read_alias(root: Store, name: str) -> ShownAlias:
    """Return what an alias names; with a problem if it cannot be read."""
    try:
        record = read_record(root, name)
    except StorageError as error:
        return _shown(name, None, shown_text(error))
    except ValidationError as error:
        return _shown(name, None, f"{root.uri.join(name)}.json is not the record of an alias: {words_of(error.errors()[0])}")
    return _shown(name, record, "")


def _shown(name: str, record: AliasRecord | None, problem: str) -> ShownAlias:
    history = record.history if record is not None else ()
    is_other = record is not None and any(entry.manifest != record.current.manifest for entry in history)
    return ShownAlias(
        name=name,
        current=_entry(record.current) if record is not None else None,
        history=[_entry(each) for each in history[:_MAX_HISTORY]],
        more=max(0, len(history) - _MAX_HISTORY),
        canRollBack=is_other,
        problem=problem,
    )


def _entry(promotion: Promotion) -> dict[str, Any]:
    return {
        "uri": shown_text(promotion.uri),
        "digest": shown_text(promotion.manifest, 200),
        "step": promotion.step if abs(promotion.step) < 2**63 else None,
        "source": shown_text(promotion.source, 300),
        "promoted": shown_text(promotion.promoted, 64),
        "evaluation": shown_figures(promotion.evaluation),
        "reason": shown_text(promotion.reason),
    }


def read_record(root: Store, name: str) -> AliasRecord | None:
    """Return the record of an alias, or None. Raises ValidationError, StorageError."""
    content = read_small(root, f"{name}.json")
    return None if content is None else AliasRecord.model_validate_json(content)


def aliases_naming(aliases: list[ShownAlias], digest: str) -> list[str]:
    """Return the names of the aliases that name the export with this digest now."""
    return [each["name"] for each in aliases if each["current"] is not None and each["current"]["digest"] == digest]


@dataclass(frozen=True)
class BoundedExport(Export):
    """An export of which no large file is read."""

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file of at most 32 MiB, or None if the manifest does not list it. Raises StorageError."""
        for file in self.manifest.files:
            if file.path == path:
                store, key = self.place(file)
                return read_small(store, key, MAX_MANIFEST)
        return None


def read_small(store: Store, key: str, limit: int = MAX_RECORD) -> bytes | None:
    """Return the contents of a file of at most `limit` bytes, None if there is none. Raises StorageError, also for a larger one."""
    try:
        content = store.read_range(key, 0, limit + 1)
    except NotFound:
        return None
    if len(content) > limit:
        raise StorageError(f"{store.uri.join(key)} is larger than {limit} bytes, and is not shown")
    return content


def read_small_export(store: Store) -> BoundedExport:
    """Return the export in a store. Raises NoCheckpoint, CheckpointError, StorageError."""
    content = read_small(store, MANIFEST, MAX_MANIFEST)
    if content is None:
        raise NoCheckpoint(f"{store.uri} contains no export: it has no {MANIFEST}")
    return BoundedExport(store, Manifest.parse(content, str(store.uri.join(MANIFEST))))
