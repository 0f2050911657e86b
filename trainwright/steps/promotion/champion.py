"""What the champion is, whether other data have come since it was trained, which trainings a promotion has kept out, and how to
restore the one before.

Trainings are remembered as kept out so that a scheduled retraining does not repeat one every night. The record is a file beside
that of the alias. It only saves work: without it, or if it is broken, a training is repeated. An alias is rolled back once for each
step: without a mark, a retry after a lost answer would undo what the first try did.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.promotion import CHAMPION, Alias, AliasRecord
from trainwright.jobs.request.workspace import AUTO
from trainwright.steps.requests import PromoteModel, ReadChampion
from trainwright.storage.errors import StorageError
from trainwright.storage.open import open_store
from trainwright.storage.store import change_file, read_if_present

State = Literal["none", "outdated", "current"]
_MOST = 100
_NOT_TRAINED = ("num_nodes", "num_proc_per_node", "resources_per_node", "labels", "workspace", "resume", "export_uri")
_NOT_TRAINED_GROUPS = ("limits", "ending", "logging", "secrets")
"""Settings that do not change what is trained. Of `placement`, the patches and the kind of the runtime do."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Champion:
    """The export that an alias names; all empty if it names none. `dataset_digest` is that of the data that it was trained on, `model`
    that of its base model, empty if its manifest does not record them."""

    uri: str = ""
    digest: str = ""
    dataset_digest: str = ""
    model_digest: str = ""

    def is_outdated(self, dataset_digest: str, model_digest: str = "") -> bool:
        """Whether a training on this dataset and base model could come to anything else. An empty digest is not compared."""
        if not self.uri or self.dataset_digest != dataset_digest:  # nothing to keep, or trained on other data
            return True
        return bool(model_digest) and self.model_digest != model_digest

    def state(self, dataset_digest: str, model_digest: str = "", *, always_train: bool = False) -> State:
        """Return none without a champion, outdated if it was trained on other data, or with `always_train`; else current."""
        if not self.uri:
            return "none"
        return "outdated" if always_train or self.is_outdated(dataset_digest, model_digest) else "current"


class Found(NamedTuple):
    """What an alias names, its state with regard to what is asked about, and `resume` of a training that would replace it. The
    `reason` says why nothing is to be trained; it is empty if something is. `training` is the digest of the settings asked about."""

    champion: Champion
    state: State
    start_from: str
    reason: str = ""
    training: str = ""

    def as_dict(self) -> dict[str, Any]:
        more = {"reason": self.reason, "training_digest": self.training}
        return {"state": self.state, "start_from": self.start_from, **more, **asdict(self.champion)}


def read_champion_for(request: ReadChampion) -> Found:
    """Return what the alias names, and what that means for a training. Raises as `read_champion`."""
    champion = read_champion(request.export_uri, request.alias)
    state = champion.state(request.dataset_digest, request.model_digest, always_train=request.always_train)
    has_same_base = not request.model_digest or champion.model_digest in ("", request.model_digest)
    is_warm = request.warm_start and bool(champion.uri) and has_same_base
    reason, training = "", settings_digest(request.training)
    if state == "current":
        reason = f"the champion {champion.uri} was trained on the same dataset, {request.dataset_digest}"
    elif not request.always_train:
        asked = Rejection(dataset=request.dataset_digest, model=request.model_digest, settings=training, champion=champion.digest)
        if (kept_out := rejection_of(request.export_uri, request.alias, asked)) is not None:
            state = "current"
            reason = (
                f"the same training was done, and its export {kept_out.uri} was not promoted: {kept_out.reason}; "
                "set always_train to train it again"
            )
    return Found(champion, state, f"weights:{champion.uri}" if is_warm else AUTO, reason, training)


def read_champion(export_uri: str, alias: str = CHAMPION) -> Champion:
    """Return what the alias below the folder of all exports names.

    Raises NoCheckpoint if its export is gone, CheckpointError if there is another one in its place, StorageError.
    """
    record = Alias(export_uri, alias).read()
    if record is None:  # no export was ever promoted
        return Champion()
    manifest = open_export(record.current.uri, record.current.manifest).manifest
    origin = manifest.metadata.get("origin")
    known = origin if isinstance(origin, dict) else {}
    return Champion(record.current.uri, manifest.digest, str(known.get("dataset") or ""), str(known.get("model") or ""))


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
    except (CheckpointError, StorageError) as error:  # the rejection stands; the next run may train the same again
        log.warning("event=rejection_not_remembered uri=%s error=%s", request.checkpoint_uri, error)


def _add(export_uri: str, alias: str, found: Rejection) -> None:
    def added(old: bytes | None) -> bytes:
        others = tuple(each for each in _parsed(old) if not each.is_of(found))
        return _Rejections(rejected=(found, *others)[:_MOST]).model_dump_json(indent=1).encode() + b"\n"

    change_file(open_store(export_uri), _key(alias), added)


def _parsed(content: bytes | None) -> tuple[Rejection, ...]:
    if content is None:
        return ()
    try:
        return _Rejections.model_validate_json(content).rejected
    except ValidationError as error:  # forgotten rejections cost a training, an unreadable file must not fail the run
        log.warning("event=rejections_unreadable error=%s", error.errors()[0]["msg"])
        return ()


class _Rejections(BaseModel):
    model_config = ConfigDict(frozen=True)

    rejected: tuple[Rejection, ...] = ()


def _key(alias: str) -> str:
    return f"{alias}.rejected.json"


def rejection_of(export_uri: str, alias: str, asked: Rejection) -> Rejection | None:
    """Return how a training that was like the one asked about came to be kept out; None if none was. Raises StorageError."""
    recorded = _parsed(read_if_present(open_store(export_uri), _key(alias)))
    return next((each for each in recorded if each.is_of(asked)), None)


def roll_back_once(export_uri: str, alias: str, *, step: str, expected_digest: str = "", reason: str = "") -> AliasRecord:
    """Restore the previous export of an alias, unless `step` has done so already; `step` is recorded with the reason. An empty
    one is not recorded, and rolls back each time.

    `expected_digest` is the digest of the manifest that the alias must name now; an empty one accepts any.
    Raises NoCheckpoint, PromotionConflict, CheckpointError, StorageError, see `Alias.roll_back`.
    """
    named, recorded = Alias(export_uri, alias), f"{reason} (by {step})" if reason else f"rolled back by {step}"
    record = named.read()
    if not step:
        recorded = reason
    elif record is not None and recorded in (entry.reason for entry in (record.current, *record.history)):
        log.info("event=rolled_back_already alias=%s step=%s", alias, step)
        return record
    expected = expected_digest or (record.current.manifest if record is not None else None)
    return named.roll_back(expected=expected, reason=recorded)
