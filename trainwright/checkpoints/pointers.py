"""`latest.json` and `best.json` beside a run's exports, and the export to resume from, which is found by them or by its own URI.

They name the export that was published last, and the one with the best metric. Both are changed only if they are as they were read,
and never name an export that is not published.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trainwright.api.times import parse_time
from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.exported import find_export_in, read_export
from trainwright.checkpoints.manifest import BEST, HAS_ENDED, LATEST, MANIFEST, OWNER, Manifest
from trainwright.checkpoints.origin import TRAINER, Origin, is_same_origin
from trainwright.jobs.state.identity import Identity
from trainwright.storage.claims import unseen_path_hint
from trainwright.storage.errors import StorageError
from trainwright.storage.open import open_store
from trainwright.storage.store import Store, change_file, read_if_present
from trainwright.storage.uri import StorageUri

Pointer = dict[str, Any]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Metric:
    """The metric that chooses the best export, as logged by training, and whether more is better."""

    name: str = "eval_loss"
    greater_is_better: bool = False

    def is_better(self, value: float, than: float) -> bool:
        return value > than if self.greater_is_better else value < than


def publication_time(store: Store) -> str:
    """Return the time for a manifest that is published now: later than that of the latest export, whatever the clocks say."""
    moment = datetime.now(UTC)
    latest = _pointer(read_if_present(store, LATEST)) or {}
    with contextlib.suppress(ValueError):
        moment = max(moment, parse_time(str(latest.get("created") or "")) + timedelta(microseconds=1))
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def update_latest(store: Store, name: str, manifest: Manifest) -> None:
    """Point `latest.json` to the export `name`, unless it names an existing one that was published later, or that can be resumed
    from while this one cannot. Raises StorageError.
    """
    pointer = {**_describe(name, manifest), "created": manifest.created, "resumable": manifest.resumable}

    def is_replaced(current: Pointer) -> bool:
        if current.get("resumable") is not manifest.resumable:  # whoever resumes needs the one from which that is possible
            return manifest.resumable
        return (_created(current), current["step"]) < (_created(pointer), manifest.step)

    _update(store, LATEST, pointer, is_replaced)


def update_best(store: Store, name: str, manifest: Manifest, metric: Metric) -> None:
    """Point `best.json` to the export `name` if it has the metric, and no existing export is better. Raises StorageError."""
    value = manifest.metrics.get(metric.name)
    if value is None:  # nothing was measured that could be compared
        return
    chosen_by = {"metric": metric.name, "greater_is_better": metric.greater_is_better}
    pointer = {**_describe(name, manifest), **chosen_by, "value": value}

    def is_replaced(current: Pointer) -> bool:
        # Chosen by another metric: the two cannot be compared.
        if {field: current.get(field) for field in chosen_by} != chosen_by or not isinstance(current.get("value"), int | float):
            return True
        return metric.is_better(value, current["value"])

    _update(store, BEST, pointer, is_replaced)


def latest_export(store: Store) -> tuple[str, str] | None:
    """Return name and manifest digest of the latest export, or None."""
    return _named_by(store, LATEST)


def best_export(store: Store) -> tuple[str, str] | None:
    """Return name and manifest digest of the export with the best metric, or None."""
    return _named_by(store, BEST)


def _named_by(store: Store, key: str) -> tuple[str, str] | None:
    pointer = _pointer(read_if_present(store, key))
    return None if pointer is None else (pointer["checkpoint"], pointer["manifest"])


def _update(store: Store, key: str, pointer: Pointer, is_replaced: Callable[[Pointer], bool]) -> None:
    text = json.dumps(pointer, sort_keys=True, allow_nan=False).encode() + b"\n"

    def change(old: bytes | None) -> bytes | None:
        current = _pointer(old)
        if current == pointer:  # written already, as by an earlier try
            return None
        # The named export is the better one, and exists.
        if current is not None and not is_replaced(current) and store.head(f"{current['checkpoint']}/{MANIFEST}") is not None:
            return None
        return text

    change_file(store, key, change, advice="the export exists, run it again to update the pointer")


def _describe(name: str, manifest: Manifest) -> Pointer:
    return {"checkpoint": name, "step": manifest.step, "manifest": manifest.digest}


def _created(pointer: Pointer) -> datetime:
    """When the export was published; a pointer with an unreadable time counts as the oldest."""
    try:
        return parse_time(str(pointer.get("created") or ""))
    except ValueError:  # written by hand: any export is newer
        return datetime.min.replace(tzinfo=UTC)


def _pointer(content: bytes | None) -> Pointer | None:
    try:
        pointer: Any = json.loads(content or b"null")
    except (ValueError, RecursionError):  # it counts as missing, so that the next export repairs it
        return None
    match pointer:
        case {"step": int(), "manifest": str(), "checkpoint": str(name)} if name not in ("", ".", "..") and "/" not in name:
            return dict(pointer)
        case _:
            return None


@dataclass(frozen=True)
class ResumeSource:
    """An export and its manifest."""

    uri: str
    manifest: Manifest

    def is_of(self, origin: Origin) -> bool:
        """Whether the export comes from this dataset, model and trainer, or does not record its origin."""
        recorded = self.manifest.metadata.get("origin")
        return recorded is None or is_same_origin(recorded, origin)

    @property
    def has_ended(self) -> bool:
        """Whether its training had no step left, as far as that is recorded."""
        return self.manifest.metadata.get(HAS_ENDED) is True

    @property
    def trainer(self) -> str:
        """The builtin trainer that the export comes from, if it is known."""
        recorded = self.manifest.metadata.get("origin")
        return str(recorded.get(TRAINER) or "") if isinstance(recorded, dict) else ""


def find_export(uri: str) -> ResumeSource:
    """Return the export at `uri`, or the latest one below it. Raises NoCheckpoint, CheckpointError, StorageError."""
    store = open_store(uri)
    if (export := find_export_in(store)) is not None:  # the URI of an export itself
        return ResumeSource(export.uri, export.manifest)
    latest = latest_export(store)
    if latest is None:
        raise NoCheckpoint(
            f"{store.uri} contains no export: it has neither {MANIFEST} nor {LATEST}; the exports of a run are in its own "
            f"folder, as in {store.uri.join('RUN')}{unseen_path_hint(store.uri)}"
        )
    name, digest = latest
    chosen = read_export(store.below(name), digest)
    return ResumeSource(chosen.uri, chosen.manifest)


def latest_export_lookup(export_uri: str) -> Callable[[Identity], str]:
    """Return a function for `submit_or_adopt` that finds the URI of the latest export of a step's folder below `export_uri`, else "".

    An export of another owner is never returned. If the store cannot be read it logs a warning, because a checkpoint on the volume
    may be enough.
    """

    def find_latest(identity: Identity) -> str:
        try:
            folder = StorageUri.parse(export_uri).join(identity.exports)
            try:
                source = find_export(str(folder))
            except NoCheckpoint:  # the first job of the run
                return ""
            owner = source.manifest.metadata.get(OWNER)
            # It is of another run or another owner: the step does not resume from its weights.
            if source.manifest.source.rpartition("/")[0] != identity.run or owner not in (None, identity.owner):
                log.info(
                    "export of another run or owner ignored uri=%s source=%s owner=%s", source.uri, source.manifest.source, owner
                )
                return ""
            return source.uri
        except (CheckpointError, StorageError) as error:  # a checkpoint on the volume may be enough
            log.warning(
                "earlier exports of this run could not be looked up: without a checkpoint in its workspace, the job starts from "
                "the beginning; give the submitting step credentials for this store uri=%s error=%s",
                export_uri,
                error,
            )
            return ""

    return find_latest
