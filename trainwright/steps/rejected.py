"""Remembers which trainings a promotion has kept out, so that a scheduled retraining does not repeat one every night.

The record is a file beside that of the alias. It only saves work: without it, or if it is broken, a training is repeated.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import open_export
from trainwright.steps.requests import PromoteModel
from trainwright.storage.errors import StorageError
from trainwright.storage.open import open_store
from trainwright.storage.store import change_file, read_if_present

_MOST = 100
_NOT_TRAINED = ("num_nodes", "num_proc_per_node", "resources_per_node", "labels", "workspace", "resume", "export_uri")
_NOT_TRAINED_GROUPS = ("limits", "ending", "logging", "secrets")
"""Settings that do not change what is trained. Of `placement`, the patches and the kind of the runtime do."""
log = logging.getLogger(__name__)


class Rejection(BaseModel):
    """A training that was kept out: the digests of its data, base model and settings, and of the champion at that time."""

    model_config = ConfigDict(frozen=True)

    dataset: str = ""
    model: str = ""
    settings: str = ""
    champion: str = ""
    """Empty if nothing was in use."""
    uri: str = ""
    reason: str = ""

    def is_of(self, other: Rejection) -> bool:
        """Whether both are of the same training, compared with the same champion. An unknown base model is not compared."""
        known = (self.dataset, self.settings, self.champion) == (other.dataset, other.settings, other.champion)
        is_same_base = self.model == other.model or "" in (self.model, other.model)
        return known and is_same_base and bool(self.dataset and self.settings)


class _Rejections(BaseModel):
    model_config = ConfigDict(frozen=True)

    rejected: tuple[Rejection, ...] = ()


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Return the digest of the settings of a training that change what is trained.

    It is empty without settings, and for a training on code, whose path or branch does not tell what it has become.
    """
    if not settings or any(settings.get(name) for name in ("code", "func", "manifest")):
        return ""
    of_training = {name: value for name, value in settings.items() if name not in (*_NOT_TRAINED, *_NOT_TRAINED_GROUPS)}
    place = of_training.pop("placement", None) or {}
    of_training["placement"] = {name: place[name] for name in ("runtime_patches", "runtime_kind") if name in place}
    text = json.dumps({name: value for name, value in of_training.items() if value}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def remember_rejection(request: PromoteModel, champion: str, reason: str) -> None:
    """Remember that the candidate of a request was not promoted in place of the champion with this digest. Never raises."""
    try:
        origin = open_export(request.checkpoint_uri, request.checkpoint_digest).manifest.metadata.get("origin")
        known = origin if isinstance(origin, dict) else {}
        found = Rejection(
            dataset=str(known.get("dataset") or ""),
            model=str(known.get("model") or ""),
            settings=settings_digest(request.training),
            champion=champion,
            uri=request.checkpoint_uri,
            reason=reason,
        )
        if found.dataset and found.settings:
            _add(request.export_uri, request.alias, found)
    except (CheckpointError, StorageError) as error:
        log.warning("event=rejection_not_remembered uri=%s error=%s", request.checkpoint_uri, error)


def _add(export_uri: str, alias: str, found: Rejection) -> None:
    def added(old: bytes | None) -> bytes:
        others = tuple(each for each in _parsed(old) if not each.is_of(found))
        return _Rejections(rejected=(found, *others)[:_MOST]).model_dump_json(indent=1).encode() + b"\n"

    change_file(open_store(export_uri), _key(alias), added)


def rejection_of(export_uri: str, alias: str, asked: Rejection) -> Rejection | None:
    """Return how a training that was like the one asked about came to be kept out; None if none was. Raises StorageError."""
    recorded = _parsed(read_if_present(open_store(export_uri), _key(alias)))
    return next((each for each in recorded if each.is_of(asked)), None)


def _key(alias: str) -> str:
    return f"{alias}.rejected.json"


def _parsed(content: bytes | None) -> tuple[Rejection, ...]:
    if content is None:
        return ()
    try:
        return _Rejections.model_validate_json(content).rejected
    except ValidationError as error:
        log.warning("event=rejections_unreadable error=%s", error.errors()[0]["msg"])
        return ()
