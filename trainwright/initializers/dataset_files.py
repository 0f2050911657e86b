"""Fetches the files of one subset and split of a dataset, and no others: a hub repository may have hundreds of subsets.

The dataset card comes first, since it says which files belong together.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainwright.initializers.dataset_card import CARD, Subset, read_card
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import FileFilter, StartProgress
from trainwright.initializers.rows import SUFFIXES
from trainwright.initializers.source import fetch, revision_for
from trainwright.initializers.subsets import Selection, select_files
from trainwright.storage.plain_files import no_progress
from trainwright.storage.uri import StorageUri

_MAX_SHOWN = 5
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _CardFilter(FileFilter):
    """Fetches the card alone. A source asks its filter about every name, so this learns the names of the data files."""

    names: set[str] = field(default_factory=set)

    def matches(self, name: str) -> bool:
        if name in self.also or super().matches(name):
            self.names.add(name)
        return name in self.also


def fetch_selection(
    source: StorageUri,
    file_filter: FileFilter,
    revision: str | None,
    target: Path,
    start_progress: StartProgress,
    *,
    subset: str = "",
    split: str = "",
    where: str = "",
) -> Selection:
    """Copy the files of the subset and split to `target`, and those of its held-out splits. Resumes an interrupted transfer.

    `file_filter` matches the data files and the card, `revision` is from `resolve_revision` with it; `where` names the dataset
    in errors. Raises InitializerError (no data, no such subset or split), StorageError, NoSpace, OSError.
    """
    where = where or str(source)
    data_filter = replace(file_filter, also=frozenset())
    names: set[str] = set()
    card: tuple[Subset, ...] = ()
    if not _is_single_file(source):
        names, card = _list_names(source, file_filter, revision, target)
    if not names:  # a single file, or nothing: then this raises why
        fetched = fetch(source, data_filter, revision_for(source, data_filter, revision), target, start_progress)
        selection = select_files([path.as_posix() for path in fetched.paths], (), subset, split, where)
    else:
        selection = select_files(names, card, subset, split, where)
        chosen = replace(data_filter, only=frozenset({*selection.train, *selection.held_out}))
        fetched = fetch(source, chosen, revision_for(source, chosen, revision), target, start_progress)
    if selection.left_out:
        log.info("event=splits_left_out uri=%s split=%s left_out=%s", where, selection.split, ",".join(selection.left_out))
    if selection.unread:
        some = ",".join(selection.unread[:_MAX_SHOWN]) + (",..." if len(selection.unread) > _MAX_SHOWN else "")
        log.warning(
            "event=files_unread uri=%s files=%d names=%s reason=others_are_named_train", where, len(selection.unread), some
        )
    return replace(selection, details=fetched.details)


def _list_names(
    source: StorageUri, file_filter: FileFilter, revision: str | None, target: Path
) -> tuple[set[str], tuple[Subset, ...]]:
    """Return the names of the data files, and the subsets of the card. Neither if the source cannot be used."""
    card_filter = _CardFilter(file_filter.kind, file_filter.allow, file_filter.ignore, also=file_filter.also)
    try:
        fetch(source, card_filter, revision if source.scheme == "hf" else None, target, lambda _total: no_progress)
    except InitializerError:  # without a card, no file matches
        if CARD in card_filter.names:
            raise
    names = card_filter.names - {CARD}
    return names, read_card(target / CARD, target) if CARD in card_filter.names and names else ()


def _is_single_file(source: StorageUri) -> bool:
    """Whether the source is, or may be, the data file itself rather than a folder."""
    if source.is_web:  # an address is a single file
        return True
    if source.scheme == "file":
        return not source.path.is_dir()
    return (source.folder if source.scheme == "hf" else source.key).lower().endswith(SUFFIXES)
