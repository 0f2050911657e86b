"""Finds the export to resume from, by its own URI or by that of a folder of exports, of which the latest is used."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.exported import find_export_in, read_export
from trainwright.checkpoints.manifest import HAS_ENDED, LATEST, MANIFEST, OWNER, Manifest
from trainwright.checkpoints.origin import TRAINER, Origin, is_same_origin
from trainwright.checkpoints.pointers import latest_export
from trainwright.jobs.state.identity import Identity
from trainwright.storage.claims import unseen_path_hint
from trainwright.storage.errors import StorageError
from trainwright.storage.open import open_store
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)


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
    if (export := find_export_in(store)) is not None:
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
            return _latest_of(identity, StorageUri.parse(export_uri).join(identity.exports))
        except (CheckpointError, StorageError) as error:
            log.warning(
                "earlier exports of this run could not be looked up: without a checkpoint in its workspace, the job starts from "
                "the beginning; give the submitting step credentials for this store uri=%s error=%s",
                export_uri,
                error,
            )
            return ""

    return find_latest


def _latest_of(identity: Identity, folder: StorageUri) -> str:
    """Return the URI of the latest export in a folder if the step's run created it, else "". Raises CheckpointError, StorageError."""
    try:
        source = find_export(str(folder))
    except NoCheckpoint:
        return ""
    owner = source.manifest.metadata.get(OWNER)
    if source.manifest.source.rpartition("/")[0] != identity.run or owner not in (None, identity.owner):
        log.info("export of another run or owner ignored uri=%s source=%s owner=%s", source.uri, source.manifest.source, owner)
        return ""
    return source.uri
