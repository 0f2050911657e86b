"""The history of a training that has written checkpoints, from wherever it was logged, in the form of transformers' `log_history`.

Most frameworks can write TensorBoard's event files: a series of records with length, checksum of the length, data, checksum of the
data (TFRecord). The data is the protobuf message `Event` (tensorflow/core/util/event.proto). A training that was killed leaves half
a record at the end.

Whoever waits for a training writes its metrics as JSON lines in the run's folder. A line is an object with numbers and `step`. A
training that reports no steps has `report` instead, the number of the report.
"""

from __future__ import annotations

import json
import logging
import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from trainwright.checkpoints.formats.whole_files import training_state
from trainwright.storage.errors import StorageError, UnsafeFile
from trainwright.storage.plain_files import folder_files, read_plain
from trainwright.storage.transfer import write_bytes
from trainwright.text.text_input import is_number
from trainwright.workspace.layout import OUTPUT, WorkspaceError, step_path

HISTORY = "log_history"
"""Key of the state of transformers' Trainer, and of a manifest's metadata."""
_MOST = 500
_LOSSES = ("loss", "eval_loss")

LogHistory = list[dict[str, Any]]
_NAME = "events.out.tfevents."
_MAX_FILES, _MAX_BYTES = 256, 64 * 1024 * 1024
_TRAINING = re.compile(r"(?i:train|training)[/_](.+)")
_EVALUATION = re.compile(r"(?i:eval|evaluation|val|valid|validation|test)[/_](.+)")
_LOSS = re.compile(r"(?i:loss[/_])(?i:(train|training)|(val|valid|validation|eval))")
_EPOCH = re.compile(r"epoch_(\w+)")
log = logging.getLogger(__name__)
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_HEADER = _LENGTH.size + _CHECKSUM.size
_MAX_SCALARS = 64 * 1024
"""Records with more bytes hold images, graphs and the like: they are passed over unread."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIRE_SIZES = {_FIXED64: 8, _FIXED32: 4}
_DT_FLOAT, _DT_DOUBLE = 1, 2
METRICS = "metrics.jsonl"
STEP, REPORT = "step", "report"
_MAX_METRICS_BYTES = 64 * 1024 * 1024


class Logged(NamedTuple):
    """A history from one place, which is called `source`; `counted` is the key of what its entries count."""

    source: str
    counted: str
    entries: LogHistory

    @property
    def fullness(self) -> tuple[int, int]:
        """Of the histories of a training, the one counts that has the most losses, then the most entries."""
        return sum("loss" in entry for entry in self.entries), len(self.entries)


def logged_in(state: dict[str, Any]) -> LogHistory:
    """Return the history in a `trainer_state.json` or in a manifest's metadata; none if there is none."""
    history = state.get(HISTORY)
    return [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []


def history_beside(output: Path, checkpoint: Path) -> LogHistory:
    """Return the history of a training whose `checkpoint` has none itself; none if it has, or nothing was logged.

    That is the fullest of the metrics in the folder of the run, beside its `output`, and the event files in that. Raises OSError.
    """
    if logged_in(training_state(checkpoint)):  # the state of the Trainer has the history
        return []
    beside = read_metrics(output.parent) if output.name == OUTPUT else []
    metrics = Logged(METRICS, STEP, [entry for entry in beside if STEP in entry])
    return max(metrics, Logged("event files", STEP, event_history(output)), key=lambda logged: logged.fullness).entries


def sampled(history: LogHistory) -> LogHistory:
    """Return the finite losses of a history, for a manifest: at most 500 entries, the first and the last among them."""
    found = []
    for entry in history:
        losses = {name: entry[name] for name in _LOSSES if name in entry and math.isfinite(entry[name])}
        if losses:
            found.append({STEP: int(entry[STEP]), **losses})
    if len(found) <= _MOST:  # few enough for a manifest
        return found
    return [found[round(number * (len(found) - 1) / (_MOST - 1))] for number in range(_MOST)]


def event_history(output: Path) -> list[dict[str, Any]]:
    """Return the scalars of all event files below a folder, by step; none if there are none.

    Of several values for one tag and step, the one that was written last counts: a training that was restarted repeats some steps.
    A file that is corrupt is read up to there, and links and files above 64 MiB are passed over, with a warning. Raises OSError.
    """
    if not output.is_dir():  # nothing was trained
        return []
    newest: dict[tuple[str, int], Scalar] = {}
    paths = sorted(path for path in folder_files(output).files if path.name.startswith(_NAME))
    for path in paths[-_MAX_FILES:]:
        for scalar in _read(output, Path(path)):
            key = (metric_name(scalar.tag, path.parts[:-1]), scalar.step)
            known = newest.get(key)
            if known is None or scalar.wall_time >= known.wall_time:
                newest[key] = scalar
    entries: dict[int, dict[str, Any]] = {}
    for (name, step), scalar in newest.items():
        if step >= 0 and name != "step":
            entries.setdefault(step, {"step": step})[name] = scalar.value
    return [entries[step] for step in sorted(entries)]


def metric_name(tag: str, folders: Iterable[str] = ()) -> str:
    """Return the name of a tag as transformers logs it: `train/loss` is `loss`, `val_loss` is `eval_loss`; others are kept.

    Keras writes `epoch_loss` to the folders `train` and `validation`: `folders` are those of the file. Its `batch_loss` is kept, since
    it has other steps.
    """
    if (match := _LOSS.fullmatch(tag)) is not None:
        return "loss" if match[1] else "eval_loss"
    if (match := _TRAINING.fullmatch(tag)) is not None:
        return match[1]
    if (match := _EVALUATION.fullmatch(tag)) is not None:
        return f"eval_{match[1]}"
    name = match[1] if (match := _EPOCH.fullmatch(tag)) is not None else tag
    return f"eval_{name}" if "validation" in folders else name


def _read(output: Path, path: Path) -> list[Scalar]:
    found: list[Scalar] = []
    try:
        for scalar in scalars_in(read_plain(output / path, _MAX_BYTES, output)):
            found.append(scalar)  # those before a corrupt record are kept
    except (BadEventFile, UnsafeFile) as error:
        log.warning("event=event_file_not_read_whole path=%s scalars=%d error=%s", output / path, len(found), error)
    return found


class BadEventFile(ValueError):
    """A record or message is corrupt; the message says where."""


@dataclass(frozen=True)
class Scalar:
    """`wall_time` is in seconds since 1970."""

    tag: str
    step: int
    wall_time: float
    value: float


def scalars_in(content: bytes) -> Iterator[Scalar]:
    """Yield the scalars of an event file in the order in which they were written. A record that is cut off ends it.

    Raises BadEventFile at the first record that is corrupt.
    """
    for data in _records(content):
        try:
            yield from _scalars(data)
        except (IndexError, struct.error, UnicodeDecodeError, OverflowError) as error:
            raise BadEventFile(f"an event is no valid message: {error}") from error


def _records(content: bytes) -> Iterator[bytes]:
    at, end = 0, len(content)
    while at + _HEADER <= end:
        (length,) = _LENGTH.unpack_from(content, at)
        (checksum,) = _CHECKSUM.unpack_from(content, at + _LENGTH.size)
        if _masked(content[at : at + _LENGTH.size]) != checksum:
            raise BadEventFile(f"the record at byte {at} has a wrong length")
        start = at + _HEADER
        at = start + length + _CHECKSUM.size
        if at > end:  # half a record of a training that was killed
            return
        if length > _MAX_SCALARS:  # images, graphs and the like
            continue
        data = content[start : start + length]
        if _masked(data) != _CHECKSUM.unpack_from(content, start + length)[0]:
            raise BadEventFile(f"the record at byte {start - _HEADER} has a wrong checksum")
        yield data


def _scalars(event: bytes) -> Iterator[Scalar]:
    wall_time, step, summaries = 0.0, 0, []
    for number, wire, value in _fields(event):
        if (number, wire) == (1, _FIXED64):
            (wall_time,) = struct.unpack("<d", value)
        elif (number, wire) == (2, _VARINT):
            step = int.from_bytes(value, "little")
            step -= (step >> 63) << 64  # int64
        elif (number, wire) == (5, _BYTES):
            summaries.append(value)
    for summary in summaries:
        for number, wire, value in _fields(summary):
            if (number, wire) == (1, _BYTES) and (found := _tagged(value)) is not None:
                yield Scalar(found[0], step, wall_time, found[1])


def _tagged(summary_value: bytes) -> tuple[str, float] | None:
    """Return tag and number of a `Summary.Value`; None for images and other plugins, and tensors that are not one number."""
    tag, simple, tensor, plugin = "", None, None, "scalars"
    for number, wire, value in _fields(summary_value):
        if (number, wire) == (1, _BYTES):
            tag = value.decode()
        elif (number, wire) == (2, _FIXED32):
            (simple,) = struct.unpack("<f", value)
        elif (number, wire) == (8, _BYTES):
            tensor = value
        elif (number, wire) == (9, _BYTES):
            plugin = _plugin(value)
    found = simple if simple is not None else None if tensor is None else _number(tensor)
    return None if found is None or not tag or plugin not in ("scalars", "") else (tag, found)


def _plugin(metadata: bytes) -> str:
    data = next((value for number, wire, value in _fields(metadata) if (number, wire) == (1, _BYTES)), b"")
    return next((value.decode() for number, wire, value in _fields(data) if (number, wire) == (1, _BYTES)), "")


def _number(tensor: bytes) -> float | None:
    """Return the number in a `TensorProto` without dimensions of type float or double."""
    kind, content, values = 0, b"", b""
    for number, wire, value in _fields(tensor):
        if (number, wire) == (1, _VARINT):
            kind = int.from_bytes(value, "little")
        elif (number, wire) == (2, _BYTES) and any(inner == 2 for inner, _, _ in _fields(value)):
            return None
        elif (number, wire) == (4, _BYTES):
            content = value
        elif number in (5, 6):  # packed, or the only one
            values = value
    form = {_DT_FLOAT: "<f", _DT_DOUBLE: "<d"}.get(kind)
    packed = content or values
    if form is None or len(packed) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, packed)[0])


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, wire type and bytes of the fields of a message; a varint as the eight bytes of its value."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, wire, (value & (1 << 64) - 1).to_bytes(8, "little")
            continue
        if wire == _BYTES:
            size, at = _varint(message, at)
        elif wire in _WIRE_SIZES:
            size = _WIRE_SIZES[wire]
        else:
            raise BadEventFile(f"a field has the unknown wire type {wire}")
        if at + size > len(message):
            raise BadEventFile("a field is longer than its message")
        yield key >> 3, wire, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise BadEventFile("a number has more than ten bytes")


def _masked(data: bytes) -> int:
    """Return the checksum of a TFRecord: CRC-32C, rotated and moved, so that it may be part of data with a checksum."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _table_entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = [_table_entry(byte) for byte in range(256)]


def keep_metrics(workspace: Path, folder: str, entries: Iterable[Mapping[str, Any]], count: str = STEP) -> None:
    """Write the entries of a training's history to the folder of its run, `runs/NAME` in a mounted workspace.

    `count` is what the `step` of the entries is: STEP, or REPORT. Earlier entries are kept up to the first step of these: a job that
    resumes continues there. Does nothing without entries, or if the folder is not there; a failure is only logged, since the
    training has succeeded.
    """
    lines = [{count: entry[STEP], **{name: entry[name] for name in entry if name != STEP}} for entry in entries]
    try:
        place = step_path(workspace, folder)
        if not lines or not place.is_dir():  # nothing to keep, or no place for it
            return
        first = min(line[count] for line in lines)
        lines = [line for line in read_metrics(place) if line.get(count, math.inf) < first] + lines
        write_bytes(place / METRICS, "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode())
    except (OSError, StorageError, WorkspaceError, ValueError) as error:  # the training has succeeded
        log.warning("event=metrics_not_kept folder=%s error=%s", folder, error)


def read_metrics(place: Path) -> list[dict[str, Any]]:
    """Return the entries in the folder of a run, without lines that are invalid; none if there is no such file. Raises OSError."""
    try:
        content = read_plain(place / METRICS, _MAX_METRICS_BYTES, place)
    except FileNotFoundError:  # no client has waited for a training
        return []
    except UnsafeFile as error:  # the history is shown without it
        log.warning("event=metrics_not_read path=%s error=%s", place / METRICS, error)
        return []
    return [entry for line in content.splitlines() if (entry := _entry(line)) is not None]


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):  # a line that nobody can read
        return None
    found = {name: value for name, value in entry.items() if is_number(value)} if isinstance(entry, dict) else {}
    return found if any(isinstance(found.get(name), int) for name in (STEP, REPORT)) else None
