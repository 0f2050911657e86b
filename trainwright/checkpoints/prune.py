"""Deletes old exports of a run: the manifest first, so that a reader never finds half an export, then the files that no other needs.

Pinned exports are never deleted; those that `latest.json` and `best.json` name only with all others of their run. All of it happens
under the lock of the run's exports, because an export that is being made may reference files of another one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from trainwright.checkpoints.catalog import Catalog, ListedExport, read_catalog
from trainwright.checkpoints.manifest import BEST, LATEST, MANIFEST
from trainwright.checkpoints.publish import EXPORTS_LOCK
from trainwright.checkpoints.upload import attempt_time
from trainwright.storage.open import open_store
from trainwright.storage.parallel import for_each

log = logging.getLogger(__name__)
GARBAGE_AGE = timedelta(days=1)
"""An attempt that is younger may still be running, in a store without locks."""
_AT_ONCE = 8


@dataclass(frozen=True)
class Retention:
    """Which exports are kept. An export is deleted only if no rule keeps it; without any rule all are kept."""

    keep_last: int = 0
    """The newest ones, by their time of publication."""
    keep_best: int = 0
    """Those with the best `metric`; an export without it is not one of them."""
    keep_every: int = 0
    """Those whose step is a multiple of it."""
    older_than: timedelta | None = None
    """Younger ones are kept."""
    metric: str = "eval_loss"
    greater_is_better: bool = False


@dataclass(frozen=True)
class Pruning:
    """What was deleted, or would be: exports, files with their sizes in bytes; and the exports that are kept."""

    deleted: tuple[ListedExport, ...]
    kept: tuple[ListedExport, ...]
    files: dict[str, int]

    @property
    def size(self) -> int:
        return sum(self.files.values())


def prune_exports(uri: str, retention: Retention, *, dry_run: bool = True, at: datetime | None = None) -> Pruning:
    """Delete the exports in the run's folder `uri` that `retention` does not keep. With `dry_run`, only tell which.

    Raises CheckpointError for an invalid manifest or invalid pins, StorageError.
    """
    store = open_store(uri)
    with store.lock(EXPORTS_LOCK) as lock:
        catalog = read_catalog(store)
        deleted = tuple(_deletable(catalog, retention, at or datetime.now(UTC)))
        kept = tuple(each for each in catalog.exports if each not in deleted)
        names = {each.name for each in deleted}
        used = catalog.used_keys(kept)
        files = {
            key: size
            for key, size in catalog.files.items()
            if key not in used and (key.split("/")[0] in names or key in catalog.used_keys(deleted))
        }
        if not dry_run:
            for name in sorted(names):
                lock.require()
                store.delete(f"{name}/{MANIFEST}")
                log.info("event=export_deleted uri=%s", store.uri.join(name))
            lock.require()
            for_each([key for key in files if not key.endswith(f"/{MANIFEST}")], store.delete, at_once=_AT_ONCE)
    return Pruning(deleted, kept, files)


def delete_run_exports(uri: str) -> tuple[ListedExport, ...]:
    """Delete all exports in the run's folder `uri`, also the latest and the best one, unless one of them is pinned. Returns them.

    The pointers are deleted first, so that they never name what is gone. Raises as `prune_exports`.
    """
    store = open_store(uri)
    with store.lock(EXPORTS_LOCK) as lock:
        catalog = read_catalog(store)
        # A pinned export stays, and so do the others of its run.
        if any(set(each.protected_by) - {"latest", "best"} for each in catalog.exports):
            return ()
        for key in (LATEST, BEST, *(f"{each.name}/{MANIFEST}" for each in catalog.exports)):
            lock.require()
            store.delete(key)
        log.info("event=run_exports_deleted uri=%s exports=%d", store.uri, len(catalog.exports))
        lock.require()
        for_each(sorted(catalog.used_keys(catalog.exports)), store.delete, at_once=_AT_ONCE)
    return catalog.exports


def collect_garbage(
    uri: str, *, dry_run: bool = True, at: datetime | None = None, age: timedelta = GARBAGE_AGE
) -> dict[str, int]:
    """Delete files of attempts that were cut off, and that no export needs. Returns them with their sizes in bytes.

    Raises CheckpointError for an invalid manifest, StorageError.
    """
    store, moment = open_store(uri), at or datetime.now(UTC)
    with store.lock(EXPORTS_LOCK):
        catalog = read_catalog(store)
        used = catalog.used_keys(catalog.exports)
        garbage = {
            key: size
            for key, size in catalog.files.items()
            if key not in used and (began := attempt_time(key)) is not None and began < moment - age
        }
        if not dry_run:
            for_each(list(garbage), store.delete, at_once=_AT_ONCE)
    return garbage


def _deletable(catalog: Catalog, retention: Retention, at: datetime) -> Iterable[ListedExport]:
    # Without any rule nothing is deleted.
    if retention.older_than is None and not (retention.keep_last or retention.keep_best or retention.keep_every):
        return
    last = set(_names(catalog.exports[-retention.keep_last :])) if retention.keep_last else set()
    best = set(_best(catalog, retention))
    for each in catalog.exports:
        is_kept = each.name in last or each.name in best or bool(each.protected_by)
        is_kept |= bool(retention.keep_every) and each.export.manifest.step % retention.keep_every == 0
        is_kept |= retention.older_than is not None and each.created > at - retention.older_than
        if not is_kept:
            yield each


def _best(catalog: Catalog, retention: Retention) -> list[str]:
    if not retention.keep_best:
        return []
    measured = [each for each in catalog.exports if retention.metric in each.export.manifest.metrics]
    ranked = sorted(
        measured, key=lambda each: each.export.manifest.metrics[retention.metric], reverse=retention.greater_is_better
    )
    return _names(ranked[: retention.keep_best])


def _names(exports: Iterable[ListedExport]) -> list[str]:
    return [each.name for each in exports]
