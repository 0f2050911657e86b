"""Reads the text files of a run for the page: only inside its folder, through no link, and never as HTML.

An HTML report is written by whoever may write to the volume. Its Markdown twin has the same content, and the figures of a loss curve
come as numbers, so that HTML is not served at all: not even as a download, which would run its scripts outside of every sandbox.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from trainwright.api.errors import Forbidden, NotFound
from trainwright.storage.errors import NotPermitted, StorageError
from trainwright.storage.plain_files import open_unlinked
from trainwright.ui.call import Json
from trainwright.ui.models.foreign_json import shown_text
from trainwright.workspace.layout import RUNS, run_name

MAX_SHOWN = 1024 * 1024
"""Bytes of a file that are shown."""
MAX_JSON = 32 * 1024 * 1024
SUFFIXES = (".md", ".txt", ".json", ".jsonl", ".yaml", ".yml", ".log", ".csv")
_MAX_PATH = 1_000


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
