"""Preprocesses rows with Ray Data and writes them as JSON Lines, in the order of the files.

Rows travel as JSON text: Arrow would guess the type of each column from its first rows, and read dates into texts that look like some.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import itertools
import json
import logging
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow.parquet
import ray.data

Row = dict[str, Any]
Piece = dict[str, Any]
"""A part of a file: `index` and `path`, and the bytes `start` to `end` of one that consists of lines."""

_CHUNK = 8 * 1024 * 1024
_BLOCK = 8 * 1024 * 1024
_OBJECT_STORE = 192 * 1024 * 1024
"""Above Ray's minimum. Where /dev/shm is smaller, Ray takes a file."""
_MAX_LINE = 256 * 1024 * 1024
_MAX_CPUS = 16
_TYPES = {"file": "int32", "line": "large_binary", "key": "binary", "dropped": "string", "error": "string"}
_SCHEMA = pyarrow.schema({name: pyarrow.type_for_alias(alias) for name, alias in _TYPES.items()})
_INNER_SPACES = re.compile(r"(?<=\S)[ \t]{2,}(?=\S)")
_EMPTY_LINES = re.compile(r"\n{3,}")
_OBJECTS = re.compile(
    r"extension<(?!arrow\.)"
)  # in the name of a type: those of Ray are pickled, and run code when they are read


class BadInput(Exception):
    is_bad_input = True


class Failure(Exception):
    is_expected = True


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Preprocess the files of the request into its target. Returns `rows_in`, `rows_out` and `dropped`, by reason."""
    target = Path(request["target"])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    pieces = list(_chunks(request["files"]))
    folder = _start(request["ray_address"], len(pieces))
    try:
        return _preprocess(pieces, request, target)
    finally:
        ray.shutdown()
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def _start(address: str, chunks: int) -> str:
    """Connect to a cluster, or start one here. Returns the folder of that."""
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # This module is no installed one, so workers cannot import it.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    if address:
        try:
            _connect(address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            raise Failure(f"no Ray cluster can be used at {address}: {error}") from error
        return ""
    # The paths of Ray's sockets are long, and limited to about 100 characters.
    folder = tempfile.mkdtemp(prefix="r", dir=None if len(tempfile.gettempdir()) <= 30 else "/tmp")  # noqa: S108
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # Ray's ports ask for it; without, Ray would write one to the home
    ray.init(
        address="local",
        num_cpus=max(1, min(_cpus(), chunks, _MAX_CPUS)),
        num_gpus=0,
        object_store_memory=_OBJECT_STORE,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _temp_dir=folder,
    )
    return folder


def _connect(address: str) -> None:
    """Raise OSError if nothing answers at an address with a port: Ray itself tries for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _cpus() -> int:
    """Return the processors that this process may use, with the limit of its container."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        return max(1, min(count, round(int(quota) / int(period))))
    except (OSError, ValueError):
        return count


def _preprocess(chunks: list[list[Piece]], request: dict[str, Any], target: Path) -> dict[str, Any]:
    context, operations = ray.data.DataContext.get_current(), request["operations"]
    context.execution_options.preserve_order = True
    context.target_max_block_size, context.enable_progress_bars = _BLOCK, False

    def process(batch: pyarrow.Table) -> Iterator[pyarrow.Table]:
        for text in batch["chunk"].to_pylist():
            yield from _processed(json.loads(text), operations)

    rows = ray.data.from_items([{"chunk": json.dumps(chunk)} for chunk in chunks], override_num_blocks=len(chunks))
    # Deterministic errors travel as rows; what else fails, as a worker without memory, may be tried again by Ray.
    rows = rows.map_batches(process, batch_size=None, batch_format="pyarrow")
    counts: Counter[str] = Counter()
    seen: set[bytes] = set()
    with contextlib.closing(_Output(target, {one["index"]: one["output"] for one in request["files"]})) as output:
        for batch in rows.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1):
            columns = [batch[name].to_pylist() for name in _SCHEMA.names]
            for file, line, key, dropped, error in zip(*columns, strict=True):
                if error is not None:
                    raise BadInput(error)
                counts["in"] += 1
                if dropped is None and key is not None:
                    if key in seen:
                        dropped = "duplicate"
                    seen.add(key)
                if dropped is not None:
                    counts[dropped] += 1
                else:
                    counts["out"] += 1
                    output.write(file, line)
    return {"rows_in": counts.pop("in", 0), "rows_out": counts.pop("out", 0), "dropped": dict(sorted(counts.items()))}


class _Output:
    """Writes the lines of one file after another."""

    def __init__(self, target: Path, names: dict[int, str]):
        self._target, self._names = target, names
        self._index = -1
        self._file: BinaryIO | None = None

    def write(self, index: int, line: bytes) -> None:
        if index != self._index or self._file is None:
            self.close()
            path = self._target / self._names[index]
            path.parent.mkdir(parents=True, exist_ok=True)
            self._index, self._file = index, path.open("xb")
        self._file.write(line)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _chunks(files: list[dict[str, Any]]) -> Iterator[list[Piece]]:
    """Yield what one task reads: several small files, or a part of a large one that consists of lines."""
    chunk: list[Piece] = []
    size = 0
    for file in files:
        ends = range(_CHUNK, file["size"], _CHUNK) if file["format"] == ".jsonl" else ()
        bounds = [0, *ends, file["size"]]
        for start, end in itertools.pairwise(bounds):
            if chunk and size + end - start > _CHUNK:
                yield chunk
                chunk, size = [], 0
            chunk.append({key: file[key] for key in ("index", "path", "name", "format")} | {"start": start, "end": end})
            size += end - start
    if chunk:
        yield chunk


def _processed(pieces: list[Piece], operations: dict[str, Any]) -> Iterator[pyarrow.Table]:
    """Yield tables of the rows of some pieces; the first row that cannot be used is the last."""
    transform = _function(operations["transform"])
    rows: list[Row] = []
    size = 0
    for piece in pieces:
        try:
            for number, row in _rows(piece):
                one = _one_row(row, operations, transform)
                if error := one.get("error"):
                    one["error"] = _encodable(f"{piece['name']}{_place(piece, number)}: {error}")
                rows.append({"file": piece["index"], "line": None, "key": None, "dropped": None, "error": None} | one)
                size += len(one.get("line") or b"")
                if one.get("error"):
                    break
                if size > _BLOCK or len(rows) >= 100_000:
                    yield pyarrow.Table.from_pylist(rows, schema=_SCHEMA)
                    rows, size = [], 0
        except _Unreadable as error:
            rows.append({"file": piece["index"], "error": _encodable(f"{piece['name']}{error}")})
        if rows and rows[-1]["error"]:
            break
    yield pyarrow.Table.from_pylist(rows, schema=_SCHEMA)


def _one_row(row: Row, operations: dict[str, Any], transform: Callable[[Row], Any] | None) -> dict[str, Any]:
    """Apply the operations to a row: return its line and key, or why it is dropped, or an error."""
    if columns := operations["columns"]:
        for column, source in columns.items():
            if source not in row:
                near = get_close_matches(source, list(row), n=1)
                hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(list(row)[:40])}"
                return {"error": f"there is no column {source!r}, which columns names for {column!r}{hint}"}
        row = {column: row[source] for column, source in columns.items()}
    if operations["normalize_whitespace"]:
        row = {name: _normalized(value) for name, value in row.items()}
    if transform is not None:
        try:
            changed = transform(row)
        except Exception as error:
            return {"error": f"{operations['transform']['name']} raised {type(error).__name__}: {error}"}
        if not changed:
            return {"dropped": "transform"}
        if not isinstance(changed, dict) or not all(isinstance(name, str) for name in changed):
            kind = type(changed).__name__
            return {"error": f"{operations['transform']['name']} returned a {kind}; expected a row, or None to drop it"}
        row = changed
    if reason := _unwanted(row, operations):
        return {"dropped": reason}
    by = operations["deduplicate_by"]
    if missing := [column for column in by if column not in row]:
        return {"error": f"there is no column {missing[0]!r}, which deduplicate_by names; it has {', '.join(row)}"}
    try:
        line, compared = _line(row), json.dumps([row[column] for column in by] if by else row, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        return {"error": f"the row cannot be written as JSON: {error}"}
    key = hashlib.blake2b(compared.encode(), digest_size=16).digest() if operations["deduplicate"] else None
    return {"line": line, "key": key}


def _unwanted(row: Row, operations: dict[str, Any]) -> str:
    texts = list(_texts(row))
    length = sum(map(len, texts))
    if operations["drop_empty"] and not any(text.strip() for text in texts):
        return "empty"
    if length < operations["min_chars"]:
        return "too short"
    return "too long" if operations["max_chars"] and length > operations["max_chars"] else ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _normalized(value: Any) -> Any:
    """Change the white space of all texts in a value; the indentation of lines stays, since it may be that of code."""
    if isinstance(value, dict):
        return {name: _normalized(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_normalized(each) for each in value]
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    if not text.isascii():
        text = "".join(" " if unicodedata.category(letter) == "Zs" else letter for letter in text)
    lines = (_INNER_SPACES.sub(" ", line.rstrip(" \t")) for line in text.split("\n"))
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip()


def _function(transform: dict[str, str] | None) -> Callable[[Row], Any] | None:
    if transform is None:
        return None
    names: dict[str, Any] = {"__name__": "transform"}
    code = compile(f"from __future__ import annotations\n{transform['source']}", "transform", "exec", dont_inherit=True)
    exec(code, names)  # noqa: S102  the user's own
    return names[transform["name"]]  # type: ignore[no-any-return]


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _line(row: Row) -> bytes:
    text = json.dumps(row, ensure_ascii=False, default=str)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can express
        return json.dumps(row, default=str).encode() + b"\n"


class _Unreadable(Exception):
    """Where and why a file cannot be read."""


def _rows(piece: Piece) -> Iterator[tuple[int, Row]]:
    """Yield rows with their numbers; for JSON Lines that is the position of the line."""
    readers = {".jsonl": _lines, ".jsonl.gz": _compressed, ".json": _whole_json, ".csv": _csv, ".parquet": _parquet}
    try:
        for number, row in readers[piece["format"]](piece):
            if not isinstance(row, dict):
                raise _Unreadable(f"{_place(piece, number)}: the row is a {type(row).__name__}, not an object")
            yield number, row
    except UnicodeDecodeError as error:
        raise _Unreadable(f": not UTF-8: {error.reason} at byte {error.start}") from None
    except (csv.Error, EOFError, gzip.BadGzipFile, pyarrow.ArrowException, ValueError) as error:
        raise _Unreadable(f": cannot be read as {piece['format'][1:]}: {str(error).partition(chr(10))[0]}") from None
    except OSError as error:
        raise _Unreadable(f": {error.strerror}; every worker must see the workspace at the same path") from None


def _lines(piece: Piece) -> Iterator[tuple[int, Any]]:
    with open(piece["path"], "rb") as file:
        if piece["start"]:
            file.seek(piece["start"] - 1)
            file.readline()  # begins in the piece before
        while (position := file.tell()) < piece["end"] and (line := file.readline(_MAX_LINE)):
            if content := line.removeprefix(b"\xef\xbb\xbf" if position == 0 else b"").strip():
                yield position, _parsed(piece, position, content)


def _compressed(piece: Piece) -> Iterator[tuple[int, Any]]:
    with gzip.open(piece["path"], "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE), b""), 1):
            if content := line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").strip():
                yield number, _parsed(piece, number, content)


def _whole_json(piece: Piece) -> Iterator[tuple[int, Any]]:
    """A list of rows, an object with such a list under `data`, or JSON Lines under this suffix."""
    data = Path(piece["path"]).read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        content = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise
        if not data.lstrip().startswith(b"{"):
            raise _Unreadable(f": not JSON: {error}") from None
        for number, line in enumerate(data.splitlines(), 1):
            if line.strip():
                yield number, _parsed(piece, number, line)
        return
    if isinstance(content, dict):
        content = content["data"] if isinstance(content.get("data"), list) else [content]
    yield from enumerate(content if isinstance(content, list) else [content], 1)


def _csv(piece: Piece) -> Iterator[tuple[int, Any]]:
    csv.field_size_limit(2**31 - 1)
    with open(piece["path"], encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            if None in row or None in row.values():
                raise _Unreadable(f", line {reader.line_num}: the row has more or fewer fields than the header")
            yield reader.line_num, row


def _parquet(piece: Piece) -> Iterator[tuple[int, Any]]:
    number = 0
    with pyarrow.parquet.ParquetFile(piece["path"]) as file:
        for column in file.schema_arrow:
            if _OBJECTS.search(str(column.type)):
                raise _Unreadable(f": the column {column.name!r} has Python objects; write it with plain types")
        for batch in file.iter_batches(batch_size=1024):
            yield from enumerate(batch.to_pylist(), number + 1)
            number += batch.num_rows


def _parsed(piece: Piece, number: int, text: bytes) -> Any:
    try:
        return json.loads(text.decode())
    except UnicodeDecodeError as error:
        raise _Unreadable(f"{_place(piece, number)}: not UTF-8: {error.reason}") from None
    except (ValueError, RecursionError) as error:
        raise _Unreadable(f"{_place(piece, number)}: not JSON: {error}") from None


def _place(piece: Piece, number: int) -> str:
    """Return where a row is, for a message."""
    if piece["format"] in (".json", ".parquet"):
        return f", row {number}"
    if piece["format"] == ".jsonl":
        line, left = 1, number
        with open(piece["path"], "rb") as file:
            while left and (data := file.read(min(left, _CHUNK))):
                line, left = line + data.count(b"\n"), left - len(data)
        number = line
    return f", line {number}"
