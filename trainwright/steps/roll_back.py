"""Rolls an alias back once for each step: without a mark, a retry after a lost answer would undo what the first try did."""

from __future__ import annotations

import logging

from trainwright.checkpoints.promotion import Alias, AliasRecord

log = logging.getLogger(__name__)


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
