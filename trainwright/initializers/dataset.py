"""Preparing a dataset: fetched, its columns mapped to what TRL reads, split into train and held-out rows, with a receipt."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from trainwright.initializers.columns import is_empty, mapper_for, shape_of
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.prepare import Task, prepare_at, prepare_in
from trainwright.initializers.rows import SUFFIXES, Row, read_rows
from trainwright.initializers.source import Announce, Wanted, fetch
from trainwright.storage.digests import silent
from trainwright.storage.uri import StorageUri
from trainwright.workspace.prepared import Prepared
from trainwright.workspace.receipt import Receipt, receipted

log = logging.getLogger(__name__)
TRAIN, TEST = "train.jsonl", "test.jsonl"
_EMPTY = "empty"
_NO_ROWS = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "config.json")
"""What the `datasets` library and the hub write beside the rows."""
_HELD_OUT_NAMES = ("test", "validation", "eval", "dev", "valid")


class DatasetOptions(BaseModel):
    """`test_fraction` of the rows is held out where the source has no split of its own; `max_rows` 0 takes all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layout: str = ""
    test_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    max_rows: Annotated[int, Field(ge=0)] = 0
    ignore: tuple[str, ...] = ()


def initialize_dataset(
    uri: str, target: Path, options: DatasetOptions | None = None, *, announce: Announce = lambda _total: silent
) -> Receipt:
    """Put `train.jsonl` and `test.jsonl` of the dataset at `uri` into `target`; returns the receipt.

    A target that has them already, from the same source in the same state, is left as it is; without `options` however
    it was prepared. The folder appears whole; `test.jsonl` is left out where it would have no rows.
    Raises InitializerError (nothing there, unknown columns, broken rows), StorageError, NoSpace.
    """
    return prepare_at(_task(uri, options, announce), target)


def prepare_dataset(
    uri: str, workspace: Path, options: DatasetOptions | None = None, *, announce: Announce = lambda _total: silent
) -> Prepared:
    """Put the dataset at `uri` into the store that all runs of `workspace` share; returns its receipt and its folder.

    What was prepared of the same source in the same state is taken, without `options` however it was prepared; so is what
    an earlier version left in `WORKSPACE/dataset`. Files are read-only. Raises as `initialize_dataset`.
    """
    return prepare_in(_task(uri, options, announce), workspace)


def _task(uri: str, options: DatasetOptions | None, announce: Announce) -> Task:
    wanted = Wanted("dataset", tuple(f"*{suffix}" for suffix in SUFFIXES), (*_NO_ROWS, *(options.ignore if options else ())))

    def make(source: StorageUri, revision: str | None, scratch: Path) -> tuple[Receipt, Path]:
        return _fetch_and_prepare(source, uri, wanted, revision, scratch, options or DatasetOptions(), announce)

    return Task("dataset", uri, wanted, options.model_dump(mode="json") if options else None, make)


def _fetch_and_prepare(
    source: StorageUri,
    uri: str,
    wanted: Wanted,
    revision: str | None,
    scratch: Path,
    options: DatasetOptions,
    announce: Announce,
) -> tuple[Receipt, Path]:
    fetched, prepared = scratch / "fetched", scratch / "prepared"
    fetched.mkdir(exist_ok=True)
    shutil.rmtree(prepared, ignore_errors=True)
    prepared.mkdir()
    paths = fetch(source, wanted, revision, fetched, announce)
    layout, counts = _prepare(fetched, paths, prepared, options, uri)
    names = [Path(name) for name in (TRAIN, TEST) if counts[name]]
    receipt = Receipt(
        kind="dataset",
        source=uri,
        revision=revision or "",
        options=options.model_dump(mode="json"),
        files=receipted(prepared, names),
        details={"layout": layout, "train_rows": counts[TRAIN], "test_rows": counts[TEST], "empty_rows": counts[_EMPTY]},
    )
    receipt.write(prepared)
    log.info("dataset prepared uri=%s rows=%d held_out=%d digest=%s", uri, counts[TRAIN], counts[TEST], receipt.digest)
    return receipt, prepared


def _prepare(folder: Path, paths: list[Path], out: Path, options: DatasetOptions, uri: str) -> tuple[str, Counter[str]]:
    """Map all rows into the two files; returns the layout and the number of rows of each, and of those left out as empty."""
    held_out = [path for path in paths if _is_held_out(path)]
    training = [path for path in paths if path not in held_out]
    if not training:
        training, held_out = held_out, []
    counts: Counter[str] = Counter()
    layout, shape = options.layout, ""
    with open(out / TRAIN, "wb") as train, open(out / TEST, "wb") as test:
        files = {TRAIN: train, TEST: test}
        for of_training, sources in ((True, training), (False, held_out)):
            for path, number, row in _rows(folder, sources, options.max_rows):
                where = f"{uri} ({path.name}, row {number})"
                layout, mapped = _mapped(row, layout, where)  # one layout for all: that of the first row
                shape = _same_shape(mapped, shape, where)
                if is_empty(mapped):
                    counts[_EMPTY] += 1
                    continue
                line = _line(mapped, where)
                drawn = not held_out and _falls_out(line, options.test_fraction)
                name = TRAIN if of_training and not drawn else TEST
                files[name].write(line)
                counts[name] += 1
    if not counts[TRAIN]:
        drawn_all = f": all {counts[TEST]} were held out, lower test_fraction" if counts[TEST] and not held_out else ""
        raise InitializerError(f"{uri} has no rows to train on{drawn_all}")
    if not counts[TEST]:
        (out / TEST).unlink()  # the datasets library refuses a folder with an empty split
    return layout, counts


def _rows(folder: Path, paths: list[Path], most: int) -> Iterator[tuple[Path, int, Row]]:
    """All rows, each with its file and its number there."""
    rows = ((path, number, row) for path in sorted(paths) for number, row in enumerate(read_rows(folder / path), 1))
    return islice(rows, most or None)


def _same_shape(mapped: Row, before: str, where: str) -> str:
    """What the columns of this row hold, text or messages: the libraries that read the dataset cannot have both."""
    shape = shape_of(mapped)
    if before not in ("", shape):
        columns = " and ".join(mapped)
        raise InitializerError(f"{where}: {columns} of this row hold {shape}, those of the rows before it {before}")
    return shape


def _mapped(row: Row, layout: str, where: str) -> tuple[str, Row]:
    name, mapper = mapper_for(list(row), layout, where)
    try:
        return name, mapper(row)
    except InitializerError as error:
        raise InitializerError(f"{where}: {error}; the row begins {str(row)[:80]!r}") from error


def _is_held_out(path: Path) -> bool:
    """By the name, as the `datasets` library does it: `test.jsonl`, `data/validation-00000-of-00001.parquet`."""
    words = "-".join(path.with_suffix("").parts).lower().replace("_", "-").replace(".", "-").split("-")
    return any(name in words for name in _HELD_OUT_NAMES)


def _falls_out(line: bytes, fraction: float) -> bool:
    """By the row's own digest: stable when rows are added, the same on every machine."""
    return int.from_bytes(hashlib.sha256(line).digest()[:8], "big") < fraction * 2**64


def _line(row: Row, where: str) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n"
    except UnicodeEncodeError as error:  # half of a character, as in "\ud83d"
        raise InitializerError(f"{where}: a row is not Unicode; it begins {str(row)[:80]!r}") from error


def read_prepared(folder: Path, name: str) -> Iterable[Row]:
    """The rows of a prepared dataset (`train.jsonl` or `test.jsonl`)."""
    return read_rows(folder / name)
