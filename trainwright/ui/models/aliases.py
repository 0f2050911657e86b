"""The aliases in a folder of exports, as `champion`: what each names and has named, with figures and reasons."""

from __future__ import annotations

import re
from typing import Any, TypedDict

from pydantic import ValidationError

from trainwright.checkpoints.manifest import BEST, LATEST
from trainwright.checkpoints.promotion import CHALLENGER, CHAMPION, AliasRecord, Promotion
from trainwright.jobs.request.invalid_settings import words_of
from trainwright.storage.errors import StorageError
from trainwright.storage.store import Store
from trainwright.ui.call import Json
from trainwright.ui.models.foreign_json import shown_figures, shown_text
from trainwright.ui.models.small_files import read_small

_NAME = re.compile(r"([a-z][a-z0-9-]{0,62})\.json")
_OTHERS = (LATEST, BEST, "pins.json")
_MAX_ALIASES, _MAX_HISTORY = 50, 200


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


def read_record(root: Store, name: str) -> AliasRecord | None:
    """Return the record of an alias, or None. Raises ValidationError, StorageError."""
    content = read_small(root, f"{name}.json")
    return None if content is None else AliasRecord.model_validate_json(content)


def aliases_naming(aliases: list[ShownAlias], digest: str) -> list[str]:
    """Return the names of the aliases that name the export with this digest now."""
    return [each["name"] for each in aliases if each["current"] is not None and each["current"]["digest"] == digest]


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
