"""Reads the rows of a dataset file: JSON Lines, JSON, CSV or TSV, each also compressed by gzip, Parquet or Arrow.

Rows are JSON with exactly the values and the bytes of Python's `json`. orjson takes half the time, but rounds integers above 64
bits, rejects NaN, and writes no spaces. The bytes of a row decide whether it is held out, so they must not change.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, AnyStr, BinaryIO, cast

import orjson

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import refuse_pointer

Row = dict[str, Any]
SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".jsonl.gz", ".json.gz", ".csv.gz", ".tsv.gz")
_BEGINNINGS = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"{": ".json", b"[": ".json"}
_SNIFFED = 4096
_GZIP = ".gz"
_MAX_WHOLE = 1024 * 1024 * 1024
"""Bytes of a compressed file that is one JSON value, once it is decompressed."""
_OTHER_DELIMITERS = ";\t"
_MAX_LINE = 256 * 1024 * 1024
"""Bytes of a line in a compressed file, whose size says nothing about that of its contents."""
_BOM = b"\xef\xbb\xbf"
_MAX_CSV_FIELD = 2**31 - 1
"""Characters; the csv module's default, 128 KiB, is too small for many documents."""
log = logging.getLogger(__name__)
_FIRST_ROUNDED = 2.0**63
"""orjson returns integers that do not fit in 64 bits as floats of at least this magnitude."""
_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode


@dataclass(frozen=True)
class Reading:
    """How to read files beside what their suffixes say: the delimiter of CSV, and the field of a JSON object that has the rows."""

    delimiter: str = ""
    field: str = ""


BY_SUFFIX = Reading()


def read_rows(path: Path, reading: Reading = BY_SUFFIX, *, max_line: int = _MAX_LINE) -> Iterator[Row]:
    """Read the rows of a file; its suffix determines the format, and without one its first bytes. Raises InitializerError with file
    and line, OSError.

    `max_line` limits the bytes of a line in a compressed file.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    suffix = "".join(suffixes[-2:] if suffixes[-1:] == [_GZIP] else suffixes[-1:]) or _suffix_of_content(path)
    readers: dict[str, Callable[[Path], Iterator[Row]]] = {
        ".jsonl": _json_lines,
        ".json": _json,
        ".csv": partial(_csv, expected=",", given=reading.delimiter, max_line=max_line),
        ".tsv": partial(_csv, expected="\t", given=reading.delimiter, max_line=max_line),
        ".parquet": _parquet,
        ".arrow": _arrow,
        ".jsonl.gz": partial(_compressed_lines, max_line=max_line),
        ".json.gz": partial(_compressed_json, max_line=max_line),
        ".csv.gz": partial(_csv, expected=",", given=reading.delimiter, max_line=max_line),
        ".tsv.gz": partial(_csv, expected="\t", given=reading.delimiter, max_line=max_line),
    }
    if reading.field and suffix.removesuffix(_GZIP) in (".json", ".jsonl"):
        readers[suffix] = partial(_json_field, field=reading.field)
    reader = readers.get(suffix)
    if reader is None:
        raise InitializerError(
            f"{path.name}: cannot read {path.suffix or 'files without a suffix'}; expected {', '.join(SUFFIXES)}"
        )
    refuse_pointer(path, path.name)
    try:
        yield from reader(path)
    except UnicodeDecodeError as error:
        raise InitializerError(f"{path.name}: not UTF-8: {error.reason} at byte {error.start}") from error


def _suffix_of_content(path: Path) -> str:
    """Return the suffix that fits a file without one, as steps of Kubeflow Pipelines write theirs; "" where the content may be any."""
    with open(path, "rb") as file:
        first = file.read(_SNIFFED).removeprefix(_BOM).lstrip()
        file.seek(0)
        if first.startswith(b"{") and _is_row(file.readline(_MAX_LINE)):
            return ".jsonl"  # unlike .json, it is read line by line
    return next((suffix for begin, suffix in _BEGINNINGS.items() if first.startswith(begin)), "")


def _json_lines(path: Path) -> Iterator[Row]:
    with open(path, "rb") as file:
        yield from _parsed_lines(path, file)


def _compressed_lines(path: Path, max_line: int) -> Iterator[Row]:
    with _decompressed(path) as file:
        yield from _parsed_lines(path, _limited_lines(path, file, max_line))


def _compressed_json(path: Path, max_line: int) -> Iterator[Row]:
    """Read JSON Lines, which most such files are, else one JSON value."""
    with _decompressed(path) as file:
        first = file.readline(max_line + 1)
    if _is_row(first):  # JSON Lines
        yield from _compressed_lines(path, max_line)
        return
    yield from _rows_of_value(path, _whole_value(path))


def _json_field(path: Path, field: str) -> Iterator[Row]:
    """Read the rows in a field of one JSON object: a list of rows, or an object with a list for each column."""
    value = _whole_value(path)
    if not isinstance(value, dict) or field not in value:
        raise InitializerError(f"{path.name}: there is no field {field!r}, which the dataset's card names")
    found = value[field]
    if isinstance(found, dict) and found and all(isinstance(column, list) for column in found.values()):
        if len({len(column) for column in found.values()}) > 1:
            raise InitializerError(f"{path.name}: the columns in the field {field!r} have different lengths")
        found = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
    if not isinstance(found, list):
        raise InitializerError(f"{path.name}: the field {field!r} is not a list of rows")
    yield from _rows_of_value(path, found)


def _whole_value(path: Path) -> Any:
    with _decompressed(path) as file:
        data = file.read(_MAX_WHOLE + 1)
    if len(data) > _MAX_WHOLE:
        raise InitializerError(f"{path.name}: one JSON value of more than {_MAX_WHOLE // 2**20} MiB; use JSON Lines")
    return _parsed(path, 1, data.removeprefix(_BOM))


def _is_row(line: bytes) -> bool:
    try:
        value = parse_json(line.removeprefix(_BOM))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and not isinstance(value.get("data"), list)


@contextmanager
def _decompressed(path: Path) -> Iterator[BinaryIO]:
    """Open a file that may be compressed. Raises InitializerError where its gzip data are invalid."""
    try:
        with open(path, "rb") as file:
            if path.suffix.lower() != _GZIP:  # not compressed
                yield file
                return
            with gzip.GzipFile(fileobj=file) as content:
                yield cast(BinaryIO, content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InitializerError(f"{path.name}: invalid or incomplete gzip: {error}") from error


def _limited_lines(path: Path, file: IO[AnyStr], max_line: int) -> Iterator[AnyStr]:
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
    except UnicodeDecodeError:  # the caller names the byte
        raise
    except (ValueError, RecursionError):
        if data.lstrip().startswith(b"{"):  # JSON Lines with another suffix
            yield from _json_lines(path)
            return
        content = _parsed(path, 1, data)
    yield from _rows_of_value(path, content)


def _rows_of_value(path: Path, content: Any) -> Iterator[Row]:
    if isinstance(content, dict):
        content = content["data"] if isinstance(content.get("data"), list) else [content]
    if not isinstance(content, list):
        raise InitializerError(f"{path.name}: expected a list of rows")
    for number, row in enumerate(content, 1):
        yield _row(path, number, row)


def _csv(path: Path, expected: str, given: str, max_line: int) -> Iterator[Row]:
    csv.field_size_limit(_MAX_CSV_FIELD)
    with _decompressed(path) as file:
        lines = _limited_lines(path, io.TextIOWrapper(file, encoding="utf-8-sig", newline=""), max_line)
        header = next(lines, "")
        reader = csv.DictReader(chain([header], lines), delimiter=given or _delimiter_of(path, header, expected))
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise InitializerError(f"{path.name}:{reader.line_num}: the row has more or fewer fields than the header")
                yield row
        except csv.Error as error:
            raise InitializerError(f"{path.name}:{reader.line_num}: not CSV: {error}") from error


def _delimiter_of(path: Path, header: str, expected: str) -> str:
    """Return the delimiter: a semicolon or a tab if the header has it, and none that the suffix promises."""
    if expected in header:  # the suffix is right
        return expected
    found = next((each for each in _OTHER_DELIMITERS if each in header), expected)
    if found != expected:
        log.info("event=delimiter_noticed file=%s delimiter=%r", path.name, found)
    return found


def _parquet(path: Path) -> Iterator[Row]:
    with _arrow_errors(path, "Parquet"):
        import pyarrow.parquet as parquet

        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()


def _arrow(path: Path) -> Iterator[Row]:
    """Read the stream format, which the library `datasets` writes, or the file format."""
    with _arrow_errors(path, "Arrow"):
        import pyarrow.ipc as ipc

        with open(path, "rb") as file:
            is_file = file.read(len(_ARROW_FILE)) == _ARROW_FILE
            file.seek(0)
            reader = ipc.open_file(file) if is_file else ipc.open_stream(file)
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches)) if is_file else reader
            for batch in batches:
                yield from batch.to_pylist()


_ARROW_FILE = b"ARROW1"


@contextmanager
def _arrow_errors(path: Path, kind: str) -> Iterator[None]:
    """Raise InitializerError where pyarrow is missing or cannot read the file."""
    try:
        import pyarrow
    except ImportError as error:
        raise InitializerError(f"{path.name}: {kind} needs the package pyarrow: install trainwright[launcher]") from error
    try:
        yield
    except pyarrow.ArrowException as error:
        raise InitializerError(f"{path.name}: invalid or incomplete {kind}: {str(error).splitlines()[0]}") from error


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


def parse_json(data: bytes) -> Any:
    """Return the value of a JSON text in UTF-8, as `json.loads` does. Raises ValueError, RecursionError."""
    try:
        value = orjson.loads(data)
        if not _may_be_rounded(value):  # orjson reads large integers as floats
            return value
    except (ValueError, RecursionError):  # also for NaN, half of a surrogate pair, and deep nesting, which `json` accepts
        pass
    return json.loads(data.decode())


def json_line(row: Row) -> bytes:
    """Return a row as a line, with the bytes of `json.dumps(row, ensure_ascii=False, default=str)`.

    Raises UnicodeEncodeError for half of a surrogate pair.
    """
    try:
        return b"{" + b", ".join([b"%b: %b" % (orjson.dumps(name), _dumped(value)) for name, value in row.items()]) + b"}\n"
    except TypeError:  # orjson's errors, and what it cannot write the same way
        return _encode(row).encode() + b"\n"


def _dumped(value: Any) -> bytes:
    if isinstance(value, str):
        return orjson.dumps(value)
    if isinstance(value, list):
        return b"[" + b", ".join([_dumped_message(message) for message in value]) + b"]"
    raise TypeError(type(value).__name__)


def _dumped_message(message: Any) -> bytes:
    """Dump an object that has only texts; with anything else the whole row is left to `json`."""
    if not isinstance(message, dict) or not all(isinstance(value, str) for value in message.values()):
        raise TypeError(type(message).__name__)
    return b"{" + b", ".join([b"%b: %b" % (orjson.dumps(name), orjson.dumps(value)) for name, value in message.items()]) + b"}"


def _may_be_rounded(value: Any) -> bool:
    if isinstance(value, float):
        return not -_FIRST_ROUNDED < value < _FIRST_ROUNDED
    if isinstance(value, dict):
        return any(_may_be_rounded(each) for each in value.values() if not isinstance(each, str))
    if isinstance(value, list):
        return any(_may_be_rounded(each) for each in value if not isinstance(each, str))
    return False
