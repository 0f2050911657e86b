"""Everything about one export: its manifest, where it comes from, what protects it and names it, and its card; and its differences
from another one.

Two exports differ in files, metrics, data, and the settings that the manifests and configurations record.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from trainwright.checkpoints.catalog import NAME
from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import Export, changed_fields, compare_exports, flat_fields, recorded_fields
from trainwright.checkpoints.manifest import OWNER, USAGE
from trainwright.checkpoints.registries.export_facts import read_facts
from trainwright.checkpoints.registries.model_card import CARD, export_page, is_export_card
from trainwright.checkpoints.training_history import HISTORY
from trainwright.checkpoints.training_start import STARTS_KEY
from trainwright.storage.errors import StorageError
from trainwright.storage.store import FolderNames, Store
from trainwright.ui.call import Json
from trainwright.ui.models.export_rows import MAX_NAMES, ShownAlias, export_row, order_of, protection_shown, read_small_export
from trainwright.ui.models.foreign_json import shown_json, shown_number, shown_text

FILES_PAGE = 500
_MAX_CARD = 1024 * 1024
_MAX_SAME_STEP = 20
_SETTINGS = ("adapter_config.json", "config.json", "generation_config.json", "tokenizer_config.json")
"""Small files whose values are compared one by one."""
_OF_STATE = ("max_steps", "num_train_epochs", "train_batch_size", "logging_steps", "save_steps", "eval_steps", "best_metric")
_STATE = "trainer_state.json"
_MAX_PATHS = 1_000


def read_export_page(store: Store, run: Store | None, aliases: list[ShownAlias]) -> Json:
    """Return what is known of an export from its store, and from that of its `run`, None if that may not be read.

    Raises NoCheckpoint, CheckpointError, StorageError.
    """
    export = read_small_export(store)
    manifest = export.manifest
    beside = run.list_folder(MAX_NAMES) if run is not None else FolderNames((), {})
    protection, problem = protection_shown(run, beside.files) if run is not None else ({}, "")
    job = manifest.source.rpartition("/")[2] if "/" in manifest.source and not manifest.source.startswith("/") else ""
    metadata = {name: value for name, value in manifest.metadata.items() if name not in (HISTORY, STARTS_KEY, USAGE, "origin")}
    return {
        **export_row(export, protection.get(export.name, ()), aliases),
        "problem": problem,
        "confirmed": manifest.confirmed,
        "run": shown_text(manifest.source.rpartition("/")[0] if job else manifest.source, 300),
        "trainjob": shown_text(job, 300),
        "owner": shown_text(manifest.metadata.get(OWNER), 300),
        "origin": origin_of(export),
        "starts": shown_json(manifest.metadata.get(STARTS_KEY)),
        "usage": shown_json(manifest.metadata.get(USAGE)),
        "metadata": shown_json(metadata),
        "named": [{"name": each["name"], "current": each["current"], "problem": each["problem"]} for each in aliases],
        "supersededBy": _superseded_by(run, beside, export) if run is not None else [],
    }


def _superseded_by(run: Store, beside: FolderNames, export: Export) -> list[dict[str, Any]]:
    """Return the exports of the same step that name this one as superseded. One that cannot be read is left out."""
    if not NAME.fullmatch(export.name):  # not in a run's folder: nothing can have replaced it
        return []
    step = order_of(export.name)[0]
    same = [name for name in beside.folders if NAME.fullmatch(name) and order_of(name)[0] == step and name != export.name]
    found = []
    for name in same[:_MAX_SAME_STEP]:
        try:
            other = read_small_export(run.below(name))
        except (CheckpointError, StorageError):
            continue
        if other.manifest.supersedes == export.manifest.digest:
            found.append({"name": shown_text(name, 200), "uri": shown_text(other.uri), "digest": other.manifest.digest})
    return found


def origin_of(export: Export) -> dict[str, str]:
    """Return the digests of the prepared dataset and model, and the builtin trainer, as far as the manifest has them."""
    origin = export.manifest.metadata.get("origin")
    return {shown_text(name, 100): shown_text(value, 300) for name, value in origin.items()} if isinstance(origin, dict) else {}


def read_files(store: Store, offset: int) -> Json:
    """Return a page of an export's files. Raises NoCheckpoint, CheckpointError, StorageError."""
    export = read_small_export(store)
    files = export.manifest.files[max(0, offset) : max(0, offset) + FILES_PAGE]
    rows = [
        {"path": shown_text(each.path), "bytes": min(each.size, 2**63 - 1), "sha256": each.sha256, "key": shown_text(each.key)}
        for each in files
    ]
    return {"files": rows, "total": len(export.manifest.files), "offset": max(0, offset), "digest": export.manifest.digest}


def read_card(store: Store) -> Json:
    """Return the model card of an export in Markdown, and the README among its files, if others have written it.

    Raises NoCheckpoint, CheckpointError, StorageError.
    """
    export = read_small_export(store)
    try:
        card, problem = export_page(read_facts(export)), ""
    except (CheckpointError, StorageError) as error:
        card, problem = "", shown_text(error)
    readme, readme_problem = _readme(export)
    return {"card": shown_text(card, _MAX_CARD), "problem": problem, "readme": readme, "readmeProblem": readme_problem}


def _readme(export: Export) -> tuple[str, str]:
    listed = next((file for file in export.manifest.files if file.path == CARD), None)
    if listed is None:
        return "", ""
    if listed.size > _MAX_CARD:
        return "", f"{CARD} has {listed.size} bytes; up to {_MAX_CARD} are shown"
    try:
        content = export.read(CARD) or b""
    except StorageError as error:
        return "", shown_text(error)
    if hashlib.sha256(content).hexdigest() != listed.sha256:  # somebody may have changed what is shown as part of the export
        return "", f"{CARD} is corrupt: its SHA-256 differs from the manifest"
    text = content.decode("utf-8", "replace")
    return ("", "") if is_export_card(text) else (shown_text(text, _MAX_CARD), "")


def diff_exports(one: Store, other: Store) -> Json:
    """Return what differs from one export to the other; `problems` are files that could not be compared.

    Raises NoCheckpoint, CheckpointError, StorageError.
    """
    first, second = read_small_export(one), read_small_export(other)
    difference, problems = compare_exports(first.manifest, second.manifest), list[str]()
    paths = {kind: difference[kind] for kind in ("added", "removed", "changed")}
    settings = changed_fields(_settings(first, problems), _settings(second, problems))
    return {
        "exports": [export_row(each, (), []) for each in (first, second)],
        "isSame": first.manifest.digest == second.manifest.digest,
        "files": {kind: [shown_text(path) for path in found[:_MAX_PATHS]] for kind, found in paths.items()},
        "counts": {**{kind: len(found) for kind, found in paths.items()}, "unchanged": difference["unchanged"]},
        "bytes": [shown_number(each) for each in difference["bytes"]],
        "metrics": {shown_text(name, 200): [*map(shown_number, pair)] for name, pair in difference["metrics"].items()},
        "data": changed_fields(origin_of(first), origin_of(second)),
        "origins": [origin_of(first), origin_of(second)],
        "recorded": shown_json(changed_fields(recorded_fields(first.manifest), recorded_fields(second.manifest))),
        "settings": shown_json(settings),
        "problems": problems,
    }


def _settings(export: Export, problems: list[str]) -> dict[str, Any]:
    """Return the values in the small configuration files of an export by FILE: NAME."""
    found: dict[str, Any] = {}
    for path in (*_SETTINGS, _STATE):
        try:
            document = json.loads(export.read(path) or b"{}")
        except StorageError as error:
            problems.append(shown_text(error))
            continue
        except (ValueError, RecursionError):
            problems.append(shown_text(f"{export.uri}: {path} is not valid JSON"))
            continue
        if path == _STATE and isinstance(document, dict):
            document = {name: document[name] for name in _OF_STATE if name in document}
        if isinstance(document, dict):
            found |= {f"{path}: {name}": value for name, value in flat_fields(document).items()}
    return found
