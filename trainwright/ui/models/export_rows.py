"""What is in a folder of exports, page by page: runs and aliases in the folder of all, exports in that of a run.

An export that cannot be read does not hide the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from trainwright.checkpoints.catalog import NAME, PINS, protection_of
from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import Export
from trainwright.checkpoints.manifest import BEST, LATEST, MANIFEST
from trainwright.checkpoints.registries.register import REGISTERED_IN
from trainwright.storage.errors import StorageError
from trainwright.storage.parallel import for_each
from trainwright.storage.store import Store
from trainwright.ui.call import Json
from trainwright.ui.models.aliases import ShownAlias, aliases_naming, read_aliases
from trainwright.ui.models.evaluations import EvaluatedExports
from trainwright.ui.models.foreign_json import shown_figures, shown_number, shown_text
from trainwright.ui.models.small_files import MAX_RECORD, read_small, read_small_export

PAGE = 50
MAX_NAMES = 20_000
"""Names of a folder that are read."""
_AT_ONCE = 8
Item = TypeVar("Item")


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
    if large := [name for name in (LATEST, BEST, PINS) if files.get(name, 0) > MAX_RECORD]:
        return {}, f"{', '.join(large)} of {store.uri} is larger than {MAX_RECORD} bytes, and is not read"
    try:
        return protection_of(store), ""
    except (CheckpointError, StorageError) as error:
        return {}, shown_text(error)


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


def order_of(name: str) -> tuple[int, int]:
    """Return the step and the number in the name of an export, to sort by."""
    step, _, number = name.partition("-")[2].partition(".")
    return int(step), int(number or 0)


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
    except (ValueError, RecursionError):
        return None
    return shown_figures(pointer, 12) if isinstance(pointer, dict) else None


def _page(names: list[str], after: str) -> Names:
    start = names.index(after) + 1 if after in names else 0
    page = names[start : start + PAGE]
    return Names(page, page[-1] if start + PAGE < len(names) else "")
