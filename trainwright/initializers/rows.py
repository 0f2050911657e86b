"""Reads the rows of a dataset file: JSON Lines (also compressed by gzip), JSON, CSV or Parquet."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.json_lines import parse_json

Row = dict[str, Any]
SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".jsonl.gz")
_GZIP = ".jsonl.gz"
_MAX_LINE = 256 * 1024 * 1024
"""Bytes of a line in a compressed file, whose size says nothing about that of its contents."""
_BOM = b"\xef\xbb\xbf"
_MAX_CSV_FIELD = 2**31 - 1
"""Characters; the csv module's default, 128 KiB, is too small for many documents."""


def read_rows(path: Path, *, max_line: int = _MAX_LINE) -> Iterator[Row]:
    """Read the rows of a file; its suffix determines the format. Raises InitializerError with file and line, OSError.

    `max_line` limits the bytes of a line in a compressed file.
    """
    suffix = _GZIP if path.name.lower().endswith(_GZIP) else path.suffix.lower()
    readers: dict[str, Callable[[Path], Iterator[Row]]] = {
        ".jsonl": _json_lines,
        ".json": _json,
        ".csv": _csv,
        ".parquet": _parquet,
        _GZIP: partial(_compressed_lines, max_line=max_line),
    }
    reader = readers.get(suffix)
    if reader is None:
        raise InitializerError(
            f"{path.name}: cannot read {path.suffix or 'files without a suffix'}; expected {', '.join(SUFFIXES)}"
        )
    try:
        yield from reader(path)
    except UnicodeDecodeError as error:
        raise InitializerError(f"{path.name}: not UTF-8: {error.reason} at byte {error.start}") from error


def _json_lines(path: Path) -> Iterator[Row]:
    with open(path, "rb") as file:
        yield from _parsed_lines(path, file)


def _compressed_lines(path: Path, max_line: int) -> Iterator[Row]:
    try:
        with open(path, "rb") as compressed, gzip.GzipFile(fileobj=compressed) as file:
            yield from _parsed_lines(path, _limited_lines(path, file, max_line))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InitializerError(f"{path.name}: invalid or incomplete gzip: {error}") from error


def _limited_lines(path: Path, file: gzip.GzipFile, max_line: int) -> Iterator[bytes]:
    number = 0
    while line := file.readline(max_line + 1):
        number += 1
        if len(line) > max_line:
            raise InitializerError(f"{path.name}:{number}: the line is longer than {max_line // 2**20} MiB")
        yield line


def _parsed_lines(path: Path, lines: BinaryIO | Iterator[bytes]) -> Iterator[Row]:
    for number, line in enumerate(_split_lines(lines), 1):
        if line.strip():
            yield _row(path, number, _parsed(path, number, line))


def _split_lines(lines: BinaryIO | Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines that end at a line feed, a carriage return, or both, without the byte order mark of the file."""
    is_first = True
    for line in lines:
        if is_first:
            line, is_first = line.removeprefix(_BOM), False
        if b"\r" in line:
            yield from line.splitlines()
        else:
            yield line


def _json(path: Path) -> Iterator[Row]:
    """Read a list of rows, an object with such a list under `data`, or JSON Lines with a `.json` suffix, common on the hub."""
    data = path.read_bytes().removeprefix(_BOM)
    try:
        content = parse_json(data)
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError):
        if data.lstrip().startswith(b"{"):
            yield from _json_lines(path)
            return
        content = _parsed(path, 1, data)
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
        raise InitializerError(f"{path.name}: Parquet needs the package pyarrow: install trainwright[launcher]") from error
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()
    except pyarrow.ArrowException as error:
        raise InitializerError(f"{path.name}: invalid or incomplete Parquet: {str(error).splitlines()[0]}") from error


def _parsed(path: Path, number: int, text: bytes) -> Any:
    try:
        return parse_json(text)
    except UnicodeDecodeError as error:
        raise InitializerError(f"{path.name}:{number}: not UTF-8: {error.reason} at byte {error.start} of the line") from error
    except (ValueError, RecursionError) as error:
        raise InitializerError(f"{path.name}:{number}: not JSON: {error}") from error


def _row(path: Path, number: int, value: Any) -> Row:
    if not isinstance(value, dict):
        raise InitializerError(f"{path.name}:{number}: the row is a {type(value).__name__}, not an object")
    return value
