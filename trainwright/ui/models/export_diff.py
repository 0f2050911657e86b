"""What differs between two exports: files, metrics, data, and the settings that the manifests and configurations record."""

from __future__ import annotations

import json
from typing import Any

from trainwright.checkpoints.exported import Export, changed_fields, compare_exports, flat_fields, recorded_fields
from trainwright.storage.errors import StorageError
from trainwright.storage.store import Store
from trainwright.ui.call import Json
from trainwright.ui.models.export_page import origin_of
from trainwright.ui.models.export_rows import export_row, read_small_export
from trainwright.ui.models.foreign_json import shown_json, shown_number, shown_text

_SETTINGS = ("adapter_config.json", "config.json", "generation_config.json", "tokenizer_config.json")
"""Small files whose values are compared one by one."""
_OF_STATE = ("max_steps", "num_train_epochs", "train_batch_size", "logging_steps", "save_steps", "eval_steps", "best_metric")
_STATE = "trainer_state.json"
_MAX_PATHS = 1_000


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
