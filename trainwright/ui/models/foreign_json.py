"""Reads what others have written for the page: JSON is bounded before it is sent to a browser, and text files only come from inside
a run's folder, through no link, and never as HTML.

Manifests, records and results may have anything in them. An HTML report is written by whoever may write to the volume. Its Markdown
twin has the same content, and the figures of a loss curve come as numbers, so that HTML is not served at all: not even as a
download, which would run its scripts outside of every sandbox.
"""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwright.api.errors import Forbidden, NotFound
from trainwright.storage.errors import NotPermitted, StorageError
from trainwright.storage.plain_files import open_unlinked
from trainwright.ui.call import Json
from trainwright.workspace.layout import RUNS, run_name

MAX_TEXT, MAX_VALUES, MAX_DEPTH = 2_000, 4_000, 12
_LARGEST = 2**63
_CUT = " …"
MAX_SHOWN = 1024 * 1024
"""Bytes of a file that are shown."""
MAX_JSON = 32 * 1024 * 1024
SUFFIXES = (".md", ".txt", ".json", ".jsonl", ".yaml", ".yml", ".log", ".csv")
_MAX_PATH = 1_000


def shown_text(value: object, limit: int = MAX_TEXT) -> str:
    """Return a text that every encoder accepts, truncated; "" for None."""
    if value is None:
        return ""
    text = str(value) if not isinstance(value, int) or isinstance(value, bool) or abs(value) < _LARGEST else "a large number"
    text = text[: limit + 1].encode("utf-8", "replace").decode()
    return text if len(text) <= limit else f"{text[: limit - len(_CUT)]}{_CUT}"


def shown_number(value: object) -> int | float | None:
    """Return a finite number that fits into 64 bits, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return value if abs(value) < _LARGEST else None
    return value if math.isfinite(value) else None


def shown_json(value: Any) -> Any:
    """Return a value of JSON types, at most 4,000 values and 12 levels of it; texts are truncated, and None replaces the rest.

    Numbers that are not finite, or too large for 64 bits, are None, too.
    """
    return _Bounded().shown(value, 0)


class _Bounded:
    """Counts what was returned."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def shown(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or value is None or isinstance(value, bool):
            return None if self._left < 0 else value
        if isinstance(value, int | float):
            return shown_number(value)
        if isinstance(value, str):
            return shown_text(value)
        if depth >= MAX_DEPTH:  # a few bytes can be nested so deep that the page would fail
            return None
        if isinstance(value, Mapping):
            return {shown_text(name, 200): self.shown(each, depth + 1) for name, each in value.items() if self._left > 0}
        if isinstance(value, list | tuple):
            return [self.shown(each, depth + 1) for each in value if self._left > 0]
        return shown_text(value)


def shown_figures(values: Mapping[str, Any], limit: int = 200) -> Json:
    """Return the first `limit` figures by name: finite numbers, texts and booleans; None for other numbers."""
    found: Json = {}
    for name, value in values.items():
        if len(found) == limit:  # others may write files without end
            break
        if value is None or isinstance(value, bool):
            found[shown_text(name, 200)] = value
        elif isinstance(value, int | float):
            found[shown_text(name, 200)] = shown_number(value)
        elif isinstance(value, str):
            found[shown_text(name, 200)] = shown_text(value)
    return found


def show_file(workspace: Path, run: str, path: str) -> Json:
    """Return the beginning of a text file of a run, as text. Raises Forbidden for other files, NotFound, UnsafeFile, StorageError."""
    name = path.rpartition("/")[2]
    if len(path) > _MAX_PATH or not name.endswith(SUFFIXES) or name.startswith("."):
        raise Forbidden(f"{shown_text(path, 200)}: only files with these endings are shown: {', '.join(SUFFIXES)}")
    content, size = read_inside(workspace, run, path, MAX_SHOWN)
    if content is None:
        raise NotFound(f"the run {run} has no file {shown_text(path, 200)}")
    text = content.decode("utf-8", "replace")
    return {"path": shown_text(path), "text": text, "bytes": size, "cut": size > len(content)}


def read_inside(workspace: Path, run: str, path: str, limit: int) -> tuple[bytes | None, int]:
    """Return the first bytes of a file in a run's folder, and its size; None if there is none.

    Raises UnsafeFile for a link, or a path out of the folder, WorkspaceError for an invalid name of a run, StorageError.
    """
    try:
        with open_unlinked(workspace, (RUNS, run_name(run), *path.split("/"))) as file:
            size = file.seek(0, 2)
            file.seek(0)
            return file.read(limit), size
    except FileNotFoundError:
        return None, 0
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise NotPermitted(f"{path}: {error.strerror}") from error
        if error.errno in (errno.ENOTDIR, errno.EISDIR):
            return None, 0
        raise StorageError(f"{path}: {error.strerror or error}") from error


def read_json_inside(workspace: Path, run: str, path: str) -> dict[str, Any] | None:
    """Return a JSON object in a run's folder; None if it is missing, larger than 32 MiB, or invalid. Raises as `read_inside`."""
    content, size = read_inside(workspace, run, path, MAX_JSON)
    if content is None or size > MAX_JSON:
        return None
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
