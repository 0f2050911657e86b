"""Prepares a dataset: downloads it, maps its columns for TRL, splits it into train and test rows, and writes a receipt."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from trainwright.initializers.columns import content_type, is_empty, mapper_for
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.file_filter import FileFilter, StartProgress
from trainwright.initializers.prepare import Preparation, parse_source, prepare_folder, prepare_in_workspace
from trainwright.initializers.rows import SUFFIXES, Row, read_rows
from trainwright.initializers.source import fetch
from trainwright.storage.digests import no_progress
from trainwright.storage.uri import StorageUri
from trainwright.workspace.prepared import Prepared
from trainwright.workspace.receipt import Receipt, digest_files

log = logging.getLogger(__name__)
TRAIN, TEST = "train.jsonl", "test.jsonl"
_EMPTY = "empty"
_METADATA_FILES = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "config.json")
"""JSON files without rows, written by the `datasets` library and the hub."""
_TEST_SPLIT_NAMES = ("test", "validation", "eval", "dev", "valid")


class DatasetOptions(BaseModel):
    """`test_fraction` is the share of test rows if the source has no test split; `max_rows` 0 means all rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layout: str = ""
    test_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    max_rows: Annotated[int, Field(ge=0)] = 0
    ignore: tuple[str, ...] = ()


def initialize_dataset(
    uri: str, target: Path, options: DatasetOptions | None = None, *, start_progress: StartProgress = lambda _total: no_progress
) -> Receipt:
    """Write `train.jsonl` and `test.jsonl` of the dataset at `uri` to `target`, atomically. Returns the receipt.

    An existing result is reused if source, revision and options are the same; without `options` any options match.
    `test.jsonl` is omitted if it would have no rows.
    Raises InitializerError (no data, unknown columns, invalid rows), StorageError, NoSpace.
    """
    return prepare_folder(_preparation(uri, options, start_progress), target)


def prepare_dataset(
    uri: str,
    workspace: Path,
    options: DatasetOptions | None = None,
    *,
    start_progress: StartProgress = lambda _total: no_progress,
) -> Prepared:
    """Write the dataset at `uri` to the store shared by all runs of `workspace`. Returns its receipt and its folder.

    An existing result is reused if source, revision and options are the same; without `options` any options match. This
    includes `WORKSPACE/dataset` from an earlier version. Files are read-only. Raises the errors of `initialize_dataset`.
    """
    return prepare_in_workspace(_preparation(uri, options, start_progress), workspace)


def _preparation(uri: str, options: DatasetOptions | None, start_progress: StartProgress) -> Preparation:
    parsed, uri = parse_source(uri)
    file_filter = FileFilter(
        "dataset", tuple(f"*{suffix}" for suffix in SUFFIXES), (*_METADATA_FILES, *(options.ignore if options else ()))
    )

    def make(source: StorageUri, revision: str | None, scratch: Path) -> tuple[Receipt, Path]:
        return _fetch_and_prepare(source, uri, file_filter, revision, scratch, options or DatasetOptions(), start_progress)

    return Preparation("dataset", parsed, uri, file_filter, options.model_dump(mode="json") if options else None, make)


def _fetch_and_prepare(
    source: StorageUri,
    uri: str,
    file_filter: FileFilter,
    revision: str | None,
    scratch: Path,
    options: DatasetOptions,
    start_progress: StartProgress,
) -> tuple[Receipt, Path]:
    fetched, prepared = scratch / "fetched", scratch / "prepared"
    fetched.mkdir(exist_ok=True)
    shutil.rmtree(prepared, ignore_errors=True)
    prepared.mkdir()
    paths = fetch(source, file_filter, revision, fetched, start_progress).paths
    layout, counts = _prepare(fetched, paths, prepared, options, uri)
    names = [Path(name) for name in (TRAIN, TEST) if counts[name]]
    receipt = Receipt(
        kind="dataset",
        source=uri,
        revision=revision or "",
        options=options.model_dump(mode="json"),
        files=digest_files(prepared, names),
        details={"layout": layout, "train_rows": counts[TRAIN], "test_rows": counts[TEST], "empty_rows": counts[_EMPTY]},
    )
    receipt.write(prepared)
    log.info("dataset prepared uri=%s train_rows=%d test_rows=%d digest=%s", uri, counts[TRAIN], counts[TEST], receipt.digest)
    return receipt, prepared


def _prepare(folder: Path, paths: list[Path], out: Path, options: DatasetOptions, uri: str) -> tuple[str, Counter[str]]:
    """Map all rows into the two files. Returns the layout and the numbers of train, test and skipped empty rows."""
    test_files = [path for path in paths if _is_test_split(path)]
    train_files = [path for path in paths if path not in test_files]
    if not train_files:
        train_files, test_files = test_files, []
    counts: Counter[str] = Counter()
    layout, kind = options.layout, ""
    with open(out / TRAIN, "wb") as train, open(out / TEST, "wb") as test:
        files = {TRAIN: train, TEST: test}
        for is_train, sources in ((True, train_files), (False, test_files)):
            for path, number, row in _rows(folder, sources, options.max_rows):
                where = f"{uri} ({path.name}, row {number})"
                layout, mapped = _mapped(row, layout, where)  # the first row determines the layout of all
                kind = _check_content_type(mapped, kind, where)
                if is_empty(mapped):
                    counts[_EMPTY] += 1
                    continue
                line = _line(mapped, where)
                is_sampled = not test_files and _is_test_row(line, options.test_fraction)
                name = TRAIN if is_train and not is_sampled else TEST
                files[name].write(line)
                counts[name] += 1
    if not counts[TRAIN]:
        all_test = f": all {counts[TEST]} rows are test rows; lower test_fraction" if counts[TEST] and not test_files else ""
        raise InitializerError(f"{uri} has no rows to train on{all_test}")
    if not counts[TEST]:
        (out / TEST).unlink()  # the datasets library rejects a folder with an empty split
    return layout, counts


def _rows(folder: Path, paths: list[Path], max_rows: int) -> Iterator[tuple[Path, int, Row]]:
    """Yield rows with their file and their number in it."""
    rows = ((path, number, row) for path in sorted(paths) for number, row in enumerate(read_rows(folder / path), 1))
    return islice(rows, max_rows or None)


def _check_content_type(mapped: Row, previous: str, where: str) -> str:
    """Return the content type, text or messages. TRL and the datasets library do not support both in one dataset."""
    current = content_type(mapped)
    if previous not in ("", current):
        columns = " and ".join(mapped)
        raise InitializerError(f"{where}: {columns} of this row contain {current}, those of earlier rows {previous}")
    return current


def _mapped(row: Row, layout: str, where: str) -> tuple[str, Row]:
    name, mapper = mapper_for(list(row), layout, where)
    try:
        return name, mapper(row)
    except InitializerError as error:
        raise InitializerError(f"{where}: {error}; the row begins {str(row)[:80]!r}") from error


def _is_test_split(path: Path) -> bool:
    """Whether the name marks a test split, as in the `datasets` library: `test.jsonl`, `data/validation-00000-of-00001.parquet`."""
    name_parts = "-".join(path.with_suffix("").parts).lower().replace("_", "-").replace(".", "-").split("-")
    return any(name in name_parts for name in _TEST_SPLIT_NAMES)


def _is_test_row(line: bytes, fraction: float) -> bool:
    """Sample by the row's digest: stable when rows are added, and the same on every machine."""
    return int.from_bytes(hashlib.sha256(line).digest()[:8], "big") < fraction * 2**64


def _line(row: Row, where: str) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n"
    except UnicodeEncodeError as error:  # an unpaired surrogate, as in "\ud83d"
        raise InitializerError(f"{where}: the row is not valid Unicode; it begins {str(row)[:80]!r}") from error
