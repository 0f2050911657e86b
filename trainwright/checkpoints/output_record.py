"""Reads the small records that we keep in an output folder to describe it: one that others have broken counts as none."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import Any

from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import disk_errors

_MAX_BYTES = 1024 * 1024
log = logging.getLogger(__name__)


def read_description(output: Path, name: str) -> Any:
    """Return the JSON value in a record, or None if it is missing or invalid. Raises StorageError."""
    path = output / name
    try:
        with disk_errors(path), contextlib.suppress(FileNotFoundError):
            return json.loads(read_plain(path, _MAX_BYTES, output))
    except (ValueError, RecursionError, UnsafeFile) as error:
        log.warning("a record is ignored path=%s error=%s", path, error)
    return None
