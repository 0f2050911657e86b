"""Prepares a dataset: downloads it, maps its columns for TRL, splits it into train and test rows, and writes a receipt.

Or copies it as it is, as Trainer's dataset initializer does: for programs that read the source's own files.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from trainwright.initializers.columns import RowMapper, check_column_names, check_receipt, listed
from trainwright.initializers.conversations import answer_rows, has_weights
from trainwright.initializers.dataset_card import CARD, Features
from trainwright.initializers.dataset_files import fetch_selection
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import FileFilter, StartProgress
from trainwright.initializers.layouts import LABEL, has_same_answers, is_empty
from trainwright.initializers.prepare import Preparation, parse_source, prepare_folder, prepare_in_workspace
from trainwright.initializers.rows import SUFFIXES, Row, json_line, parse_json, read_rows
from trainwright.initializers.same_rows import drop_rows_in_common
from trainwright.initializers.source import fetch
from trainwright.initializers.subsets import Selection, SplitPart, parse_split
from trainwright.storage.plain_files import no_progress
from trainwright.storage.uri import StorageUri
from trainwright.text.foreign_texts import one_line
from trainwright.text.text_input import read_json
from trainwright.workspace.prepared import Prepared
from trainwright.workspace.receipt import Receipt, digest_files

log = logging.getLogger(__name__)
TRAIN, TEST = "train.jsonl", "test.jsonl"
_EMPTY, _SAME, _OVERLAP, _UNLEARNED = "empty", "same", "overlap", "unlearned"
_METADATA_FILES = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "config.json", "cache-*.arrow")
"""Files without rows of the dataset, written by the `datasets` library and the hub: its caches repeat rows."""
_RULES = {"rules": 4}
"""The version of the rules by which splits are chosen and rows are read; raise it with a change of what is prepared from the same
source. It is recorded as an option, so that what other rules prepared is prepared again.
"""
_AS_MESSAGES = "as_messages"
"""Recorded like an option: whether questions and answers became messages."""


def _parsed_columns(value: Any) -> Any:
    """Read the JSON text of an environment variable or a template."""
    return read_json(value) if isinstance(value, str) and value.strip() else value or {}


def _known_columns(columns: dict[str, str]) -> dict[str, str]:
    try:
        check_column_names(columns)
    except InitializerError as error:
        raise ValueError(str(error)) from None
    return columns


class DatasetOptions(BaseModel):
    """How to read a dataset.

    layout: name of the layout of the rows; empty detects it from the columns.
    test_fraction: share of test rows if the source has no test split.
    max_rows: maximum number of rows of each split; 0 means all.
    ignore: glob patterns of files to skip.
    columns: the source's column for each column that a layout reads, as an object or its JSON text; others are dropped.
    subset: name of a subset of the dataset card, or a folder; `*` takes all files.
    split: the split to train on; empty takes `train`.
    drop_overlap: whether to leave out rows to train on that have the words of a held-out row.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    layout: str = ""
    test_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    max_rows: Annotated[int, Field(ge=0)] = 0
    ignore: tuple[str, ...] = ()
    columns: Annotated[dict[str, str], BeforeValidator(_parsed_columns), AfterValidator(_known_columns)] = {}
    subset: str = ""
    split: str = ""
    drop_overlap: bool = False

    def recorded(self) -> dict[str, Any]:
        """Return the options for the receipt, with the version of the rules; a dataset is reused if they are the same."""
        return {**self.model_dump(mode="json"), **_RULES}


def initialize_dataset(
    uri: str,
    target: Path,
    options: DatasetOptions | None = None,
    *,
    trainer: str = "",
    as_messages: bool = False,
    start_progress: StartProgress = lambda _total: no_progress,
) -> Receipt:
    """Write `train.jsonl` and `test.jsonl` of the dataset at `uri` to `target`, atomically. Returns the receipt.

    An existing result is reused if source, revision and options are the same; without `options` any options match.
    `test.jsonl` is omitted if it would have no rows. `trainer` is the builtin trainer that the dataset is for, `as_messages` makes
    messages of questions and answers, for a model with a chat template.
    Raises InitializerError (no data, no such subset, unknown columns, invalid rows, rows for another trainer), StorageError, NoSpace.
    """
    receipt = prepare_folder(_preparation(uri, options, trainer, as_messages, start_progress), target)
    check_receipt(receipt, trainer)
    return receipt


def prepare_dataset(
    uri: str,
    workspace: Path,
    options: DatasetOptions | None = None,
    *,
    trainer: str = "",
    as_messages: bool = False,
    start_progress: StartProgress = lambda _total: no_progress,
) -> Prepared:
    """Write the dataset at `uri` to the store shared by all runs of `workspace`. Returns its receipt and its folder.

    An existing result is reused if source, revision and options are the same; without `options` any options match. Files are
    read-only. Arguments and errors are those of `initialize_dataset`.
    """
    prepared = prepare_in_workspace(_preparation(uri, options, trainer, as_messages, start_progress), workspace)
    check_receipt(prepared.receipt, trainer)
    return prepared


@dataclass(frozen=True)
class _Asked:
    """What to prepare of a source, and how."""

    uri: str
    file_filter: FileFilter
    options: DatasetOptions
    trainer: str
    as_messages: bool
    start_progress: StartProgress

    def new_mapper(self) -> RowMapper:
        return RowMapper(self.options.layout, self.options.columns, self.trainer, as_messages=self.as_messages)


def _preparation(
    uri: str, options: DatasetOptions | None, trainer: str, as_messages: bool, start_progress: StartProgress
) -> Preparation:
    parsed, uri = parse_source(uri)
    file_filter = FileFilter(
        "dataset",
        tuple(f"*{suffix}" for suffix in SUFFIXES),
        (*_METADATA_FILES, *(options.ignore if options else ())),
        also=frozenset({CARD}),  # another card may choose other files
    )
    asked = _Asked(uri, file_filter, options or DatasetOptions(), trainer, as_messages, start_progress)
    needed = {**(options.recorded() if options else _RULES), _AS_MESSAGES: as_messages}
    return Preparation("dataset", parsed, uri, file_filter, needed, partial(_fetch_and_prepare, asked))


def _fetch_and_prepare(asked: _Asked, source: StorageUri, revision: str | None, scratch: Path) -> tuple[Receipt, Path]:
    uri, options = asked.uri, asked.options
    fetched, prepared = scratch / "fetched", scratch / "prepared"
    fetched.mkdir(exist_ok=True)
    shutil.rmtree(prepared, ignore_errors=True)
    prepared.mkdir()
    split, part = parse_split(options.split)
    selection = fetch_selection(
        source, asked.file_filter, revision, fetched, asked.start_progress, subset=options.subset, split=split, where=uri
    )
    source_rows = _SourceRows(fetched, selection, part, options.max_rows)
    by_answers = False
    try:
        mapper, features, counts = _prepare(asked, source_rows, prepared, by_answers=False)
    except _WeightFound:  # begun again: TRL has no weights, so each answer becomes a row
        by_answers = True
        log.info("event=weights_found uri=%s each answer to learn becomes a row, without those of weight 0", uri)
        mapper, features, counts = _prepare(asked, source_rows, prepared, by_answers=True)
    if mapper.dropped:
        log.warning("event=columns_dropped uri=%s layout=%s columns=%r", uri, mapper.layout, one_line(listed(mapper.dropped)))
    names = [Path(name) for name in (TRAIN, TEST) if counts[name]]
    card = features.write(prepared, names)
    receipt = Receipt(
        kind="dataset",
        source=uri,
        revision=revision or "",
        options={**options.recorded(), _AS_MESSAGES: asked.as_messages},
        files=digest_files(prepared, [card, *names]),
        details={
            **_details(mapper, counts, selection, options.split if part else selection.split),
            **({"by_answers": True} if by_answers else {}),
        },
    )
    receipt.write(prepared)
    log.info("dataset prepared uri=%s train_rows=%d test_rows=%d digest=%s", uri, counts[TRAIN], counts[TEST], receipt.digest)
    return receipt, prepared


def _details(mapper: RowMapper, counts: Counter[str], selection: Selection, split: str) -> dict[str, Any]:
    """Return what the receipt says of the rows, without what there is none of."""
    return {
        "layout": mapper.layout,
        "train_rows": counts[TRAIN],
        "test_rows": counts[TEST],
        "empty_rows": counts[_EMPTY],
        **({"same_answers": counts[_SAME]} if counts[_SAME] else {}),
        **({"unlearned_rows": counts[_UNLEARNED]} if counts[_UNLEARNED] else {}),
        **({"overlapping_rows": counts[_OVERLAP]} if counts[_OVERLAP] else {}),
        **({"questions": mapper.questions} if mapper.questions else {}),
        **({"dropped_columns": mapper.dropped} if mapper.dropped else {}),
        **({"unread_files": list(selection.unread)} if selection.unread else {}),
        **({"subset": selection.subset} if selection.subset else {}),
        **({"split": split} if split else {}),
        **selection.details,
    }


class _WeightFound(Exception):
    """A message has the weight 0, so each answer to learn becomes a row: also those of earlier rows."""


def _prepare(asked: _Asked, source_rows: _SourceRows, out: Path, *, by_answers: bool) -> tuple[RowMapper, Features, Counter[str]]:
    """Map all rows into the two files. Returns the numbers of train, test and skipped empty rows.

    With `by_answers`, a conversation becomes a row for each answer to learn; all of them are on the same side of the split.
    Raises _WeightFound if that is needed.
    """
    uri, mapper, features = asked.uri, asked.new_mapper(), Features()
    has_held_out = bool(source_rows.selection.held_out)
    counts: Counter[str] = Counter()
    labels: set[bool] = set()
    with open(out / TRAIN, "wb") as train, open(out / TEST, "wb") as test:
        files = {TRAIN: train, TEST: test}
        for is_train, path, number, row in source_rows:
            where = f"{uri} ({path}, row {number})"
            mapped = mapper.map_row(row, where)
            learned = [mapped]
            if by_answers:
                learned = answer_rows(mapped, where)
            elif has_weights(mapped):
                raise _WeightFound
            if is_empty(mapped) or not learned:
                counts[_EMPTY] += 1
                counts[_SAME] += has_same_answers(mapped)
                counts[_UNLEARNED] += not is_empty(mapped)
                continue
            lines = [_line(each, where) for each in learned]
            # By the digest of the row: stable when rows are added, and the same on every machine.
            is_sampled = (
                not has_held_out
                and int.from_bytes(hashlib.sha256(b"".join(lines)).digest()[:8], "big") < asked.options.test_fraction * 2**64
            )
            name = TRAIN if is_train and not is_sampled else TEST
            files[name].writelines(lines)
            for each in learned:
                features.add(each)
            counts[name] += len(lines)
            if name == TRAIN and LABEL in mapped:
                labels.add(mapped[LABEL])
    if asked.options.drop_overlap and counts[TEST]:
        counts[_OVERLAP] = drop_rows_in_common(out / TRAIN, out / TEST)
        counts[TRAIN] -= counts[_OVERLAP]
    if not counts[TRAIN]:
        is_sampled = bool(counts[TEST]) and not has_held_out
        all_test = f": all {counts[TEST]} rows are test rows; lower test_fraction" if is_sampled else ""
        part = f" in split={asked.options.split!r}" if source_rows.part else ""
        overlap = f": all {counts[_OVERLAP]} rows are held-out rows, too (drop_overlap)" if counts[_OVERLAP] else ""
        raise InitializerError(f"{uri} has no rows to train on{part}{overlap or all_test}")
    if counts[_OVERLAP] and labels:
        with open(out / TRAIN, "rb") as kept:
            labels = {parse_json(line)[LABEL] for line in kept}
    if len(labels) == 1:
        raise InitializerError(
            f"{uri}: all rows to train on have the {LABEL} {labels.pop()}, but KTO learns from the difference to others"
        )
    if not counts[TEST]:
        (out / TEST).unlink()  # the datasets library rejects a folder with an empty split
    return mapper, features, counts


@dataclass(frozen=True)
class _SourceRows:
    """The rows of the fetched files, those to train on first; each with its file and its number in it."""

    folder: Path
    selection: Selection
    part: SplitPart | None
    max_rows: int

    def __iter__(self) -> Iterator[tuple[bool, Path, int, Row]]:
        for is_train, names in ((True, self.selection.train), (False, self.selection.held_out)):
            start, stop = (
                self.part.bounds(lambda: sum(1 for _ in self._read(self.selection.train)))
                if is_train and self.part
                else (0, None)
            )
            for path, number, row in islice(islice(self._read(names), start, stop), self.max_rows or None):
                yield is_train, path, number, row

    def _read(self, names: tuple[str, ...]) -> Iterator[tuple[Path, int, Row]]:
        for path in sorted(Path(name) for name in names):
            for number, row in enumerate(read_rows(self.folder / path, self.selection.reading), 1):
                yield path, number, row


def _line(row: Row, where: str) -> bytes:
    try:
        return json_line(row)
    except UnicodeEncodeError as error:  # an unpaired surrogate, as in "\ud83d"
        raise InitializerError(f"{where}: the row is not valid Unicode; it begins {str(row)[:80]!r}") from error


def copy_dataset(
    uri: str, target: Path, *, ignore: tuple[str, ...] = (), start_progress: StartProgress = lambda _total: no_progress
) -> Receipt:
    """Copy all files of the dataset at `uri` to `target`, atomically. Returns the receipt.

    An existing copy is reused if source and revision are the same. `ignore` has glob patterns of files to leave out.
    Raises InitializerError (no files), StorageError, NoSpace.
    """
    parsed, uri = parse_source(uri)
    file_filter, options = FileFilter("dataset", ignore=ignore), {"as_is": True, "ignore": list(ignore)}

    def make(source: StorageUri, revision: str | None, scratch: Path) -> tuple[Receipt, Path]:
        copied = scratch / "copied"
        shutil.rmtree(copied, ignore_errors=True)
        copied.mkdir()
        found = fetch(source, file_filter, revision, copied, start_progress)
        receipt = Receipt(
            kind="dataset",
            source=uri,
            revision=revision or "",
            options=options,
            files=digest_files(copied, found.paths),
            details={**found.details},
        )
        receipt.write(copied)
        log.info("dataset copied uri=%s files=%d digest=%s", uri, len(receipt.files), receipt.digest)
        return receipt, copied

    return prepare_folder(Preparation("dataset", parsed, uri, file_filter, options, make), target)
