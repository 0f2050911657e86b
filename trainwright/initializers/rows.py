"""Reads the rows of a dataset file: JSON Lines, JSON, CSV or Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainwright.initializers.errors import InitializerError

Row = dict[str, Any]
SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
_MAX_CSV_FIELD = 2**31 - 1
"""Characters; the csv module's default, 128 KiB, is too small for many documents."""


def read_rows(path: Path) -> Iterator[Row]:
    """Read the rows of a file; its suffix determines the format. Raises InitializerError with file and line, OSError."""
    reader = {".jsonl": _json_lines, ".json": _json, ".csv": _csv, ".parquet": _parquet}.get(path.suffix.lower())
    if reader is None:
        raise InitializerError(
            f"{path.name}: cannot read {path.suffix or 'files without a suffix'}; expected {', '.join(SUFFIXES)}"
        )
    try:
        yield from reader(path)
    except UnicodeDecodeError as error:
        raise InitializerError(f"{path.name}: not UTF-8: {error.reason} at byte {error.start}") from error


def _json_lines(path: Path) -> Iterator[Row]:
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _row(path, number, _parsed(path, number, line))


def _json(path: Path) -> Iterator[Row]:
    """Read a list of rows, an object with such a list under `data`, or JSON Lines with a `.json` suffix, common on the hub."""
    text = path.read_text("utf-8-sig")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        if text.lstrip().startswith("{"):
            yield from _json_lines(path)
            return
        content = _parsed(path, 1, text)
    if isinstance(content, dict):
        content = content["data"] if isinstance(content.get("data"), list) else [content]
    if not isinstance(content, list):
        raise InitializerError(f"{path.name}: expected a list of rows")
    for number, row in enumerate(content, 1):
        yield _row(path, number, row)


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(_MAX_CSV_FIELD)
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise InitializerError(f"{path.name}:{reader.line_num}: the row has more or fewer fields than the header")
                yield row
        except csv.Error as error:
            raise InitializerError(f"{path.name}:{reader.line_num}: not CSV: {error}") from error


def _parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet as parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise InitializerError(f"{path.name}: Parquet needs the package pyarrow: install trainwright[train]") from error
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()
    except pyarrow.ArrowException as error:
        raise InitializerError(f"{path.name}: invalid or incomplete Parquet: {str(error).splitlines()[0]}") from error


def _parsed(path: Path, number: int, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InitializerError(f"{path.name}:{number}: not JSON: {error}") from error


def _row(path: Path, number: int, value: Any) -> Row:
    if not isinstance(value, dict):
        raise InitializerError(f"{path.name}:{number}: the row is a {type(value).__name__}, not an object")
    return value
