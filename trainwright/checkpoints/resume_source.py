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
from trainwright.storage.uri import StorageUri
from trainwright.workspace.layout import run_folder, run_name

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
        raise NoCheckpoint(
            f"{store.uri} holds no export: it has neither {MANIFEST} nor {LATEST}; those of a run lie in a folder of its own, "
            f"as in {store.uri.join('RUN')}"
        )
    name, digest = latest
    chosen = open_store(store.uri.join(name))
    return Source(str(chosen.uri), read_manifest(chosen, digest))


def exported_by(run: str, export_uri: str, *, map_index: int = -1) -> Callable[[], str]:
    """A look-up for `submit_or_adopt`: the URI of the latest export that `run` has made below `export_uri`, else "".

    It looks in the run's own folder first, and then beside it for an export of an earlier version; not for a mapped step,
    since that version did not tell mapped steps apart. A store that cannot be read is a warning: the volume may well hold
    what is needed.
    """

    def look() -> str:
        try:
            root = StorageUri.parse(export_uri)
            own = _latest_of(run, root.join(run_name(run_folder(run, map_index))))
            return own or (_latest_of(run, root) if map_index < 0 else "")
        except (CheckpointError, StorageError) as error:
            log.warning("whether this run has exported before is not known uri=%s error=%s", export_uri, error)
            return ""

    return look


def _latest_of(run: str, folder: StorageUri) -> str:
    """The latest export in a folder if `run` has made it, else "". Raises CheckpointError, StorageError."""
    try:
        source = export_at(str(folder))
    except NoCheckpoint:
        return ""
    return source.uri if source.manifest.source.rpartition("/")[0] == run else ""
