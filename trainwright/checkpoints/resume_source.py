"""The export that training goes on from: named by its own URI, or by that of a folder of exports, whose latest is taken."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.latest import latest_export
from trainwright.checkpoints.manifest import LATEST, MANIFEST, Manifest
from trainwright.checkpoints.origin import Origin
from trainwright.checkpoints.verify import read_manifest
from trainwright.storage.errors import StorageError
from trainwright.storage.store import open_store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """One export and its manifest."""

    uri: str
    manifest: Manifest

    def is_of(self, origin: Origin) -> bool:
        """Whether it comes from this dataset and model, as far as it says."""
        return self.manifest.metadata.get("origin") in (None, origin)


def export_at(uri: str) -> Source:
    """The export at `uri`, or the latest of those below it. Raises NoCheckpoint, CheckpointError, StorageError."""
    store = open_store(uri)
    if store.head(MANIFEST) is not None:
        return Source(str(store.uri), read_manifest(store))
    latest = latest_export(store)
    if latest is None:
        raise NoCheckpoint(f"{store.uri} holds no export: it has neither {MANIFEST} nor {LATEST}")
    name, digest = latest
    chosen = open_store(store.uri.join(name))
    return Source(str(chosen.uri), read_manifest(chosen, digest))


def exported_by(run: str, export_uri: str) -> Callable[[], str]:
    """A look-up for `submit_or_adopt`: the URI of the latest export below `export_uri` if `run` made it, else "".

    A store that cannot be read is a warning: the volume may well hold what is needed.
    """

    def look() -> str:
        try:
            source = export_at(export_uri)
        except NoCheckpoint:
            return ""
        except (CheckpointError, StorageError) as error:
            log.warning("whether this run has exported before is not known uri=%s error=%s", export_uri, error)
            return ""
        return source.uri if source.manifest.source.rpartition("/")[0] == run else ""

    return look
