"""Promotes an export to `champion` or `challenger`: a small file names it, with the evaluation that justified it and the history.

The file is changed only if it is as it was read, so that of two promotions one fails, and a promotion that was decided against an
earlier champion is refused. A promoted export is pinned before it is named, so that retention does not delete it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainwright.api.times import now
from trainwright.checkpoints.catalog import pin_export, unpin_export
from trainwright.checkpoints.errors import CheckpointError, FigureNotFinite, NoCheckpoint, PromotionConflict
from trainwright.checkpoints.exported import open_export
from trainwright.jobs.request.invalid_settings import words_of
from trainwright.storage.open import check_mounted, open_store
from trainwright.storage.store import Store, read_if_present
from trainwright.storage.uri import StorageUri

CHAMPION, CHALLENGER = "champion", "challenger"
_ALIAS = re.compile(r"[a-z][a-z0-9-]{0,62}")
_MAX_HISTORY = 1000


class Promotion(BaseModel):
    """An export that an alias named: its URI, the digest of its manifest, and why it was promoted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str
    manifest: str
    step: int
    source: str
    promoted: str
    """When."""
    evaluation: dict[str, Any] = {}
    """The figures that justified it, and of which data."""
    reason: str = ""


class AliasRecord(BaseModel):
    """What an alias names, and what it named before, the newest first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Annotated[int, Field(ge=1, le=1)] = 1
    alias: str
    current: Promotion
    history: tuple[Promotion, ...] = ()

    def text(self) -> bytes:
        return (
            json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode()
            + b"\n"
        )


@dataclass(frozen=True)
class Alias:
    """A name such as `champion` below the folder of all exports, `export_uri`."""

    export_uri: str
    name: str = CHAMPION

    def __post_init__(self) -> None:
        if not _ALIAS.fullmatch(self.name):
            raise CheckpointError(
                f"{self.name!r} is not an alias: lower-case letters, digits and -, as {CHAMPION} or {CHALLENGER}"
            )

    @property
    def key(self) -> str:
        return f"{self.name}.json"

    def read(self) -> AliasRecord | None:
        """Return what the alias names, or None. Raises CheckpointError for an invalid file, NotMounted, StorageError."""
        return self._read(open_store(self.export_uri))[1]

    def promote(
        self,
        uri: str,
        *,
        digest: str = "",
        expected: str | None = None,
        evaluation: dict[str, Any] | None = None,
        reason: str = "",
    ) -> AliasRecord:
        """Let the alias name the export at `uri`, with its `digest` if given.

        `expected` is the digest of the manifest that the alias must name now, or an empty string if it must name none; None
        accepts any. Promoting what is named already changes nothing.
        Raises NoCheckpoint, PromotionConflict if another export is named or was promoted meanwhile, FigureNotFinite,
        CheckpointError, StorageError.
        """
        check_figures(uri, evaluation or {})
        export = open_export(uri, digest)
        manifest = export.manifest
        entry = Promotion(
            uri=export.uri,
            manifest=manifest.digest,
            step=manifest.step,
            source=manifest.source,
            promoted=now(),
            evaluation=evaluation or {},
            reason=reason,
        )
        return self._change(entry, expected)

    def roll_back(self, *, expected: str | None = None, reason: str = "") -> AliasRecord:
        """Restore the previous export of the alias. Raises NoCheckpoint if it named nothing before or that is gone.

        Other errors are those of `promote`.
        """
        record = self.read()
        if record is None or not record.history:
            raise NoCheckpoint(f"{self.export_uri}: {self.name} has named no other export before")
        before = next((each for each in record.history if each.manifest != record.current.manifest), None)
        if before is None:
            raise NoCheckpoint(f"{self.export_uri}: {self.name} has named no other export before")
        open_export(before.uri, before.manifest)
        entry = before.model_copy(update={"promoted": now(), "reason": reason or f"rolled back from {record.current.uri}"})
        return self._change(entry, record.current.manifest if expected is None else expected)

    def _change(self, entry: Promotion, expected: str | None) -> AliasRecord:
        store = open_store(self.export_uri)
        old, record = self._read(store)
        current = "" if record is None else record.current.manifest
        if expected is not None and current != expected:
            raise PromotionConflict(
                f"{store.uri.join(self.key)} names {current or 'nothing'}, not {expected or 'nothing'}: "
                "another export was promoted meanwhile; compare with that one"
            )
        if record is not None and current == entry.manifest:  # an earlier try has promoted it
            return record
        history = () if record is None else (record.current, *record.history)[:_MAX_HISTORY]
        changed = AliasRecord(alias=self.name, current=entry, history=history)
        pin_export(*_run_and_name(entry.uri), self.name)
        if not store.compare_and_swap(self.key, old, changed.text()):
            raise PromotionConflict(f"{store.uri.join(self.key)} was changed by another promotion meanwhile; compare again")
        for former in history[1:]:  # the one before is kept for a roll back
            if former.manifest not in (entry.manifest, history[0].manifest):
                unpin_export(*_run_and_name(former.uri), self.name)
        return changed

    def _read(self, store: Store) -> tuple[bytes | None, AliasRecord | None]:
        content = read_if_present(store, self.key)
        if content is None:  # nothing was promoted yet, unless the volume is not mounted
            check_mounted(store.uri.join(self.key))
            return None, None
        try:
            return content, AliasRecord.model_validate_json(content)
        except ValidationError as error:
            raise CheckpointError(
                f"{store.uri.join(self.key)} is not the record of an alias: {words_of(error.errors()[0])}"
            ) from error


def check_figures(uri: str, evaluation: Mapping[str, Any]) -> None:
    """Check that no figure of an evaluation is NaN or infinite. Raises FigureNotFinite."""
    for name, value in evaluation.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise FigureNotFinite(
                f"{uri} is not promoted: the figure {name} of its evaluation is {value}; its training has diverged, or the evaluation "
                "has failed: evaluate it again, or promote another export"
            )


def _run_and_name(uri: str) -> tuple[Store, str]:
    name = StorageUri.parse(uri).location.rpartition("/")[2]
    return open_store(uri).parent(), name
