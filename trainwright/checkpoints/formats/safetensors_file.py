"""Checks that a safetensors file is complete by the length in its header. Reads no tensors and unpickles nothing.

Format: 8 bytes header length (little endian), a JSON header with `data_offsets` of every tensor, then the data.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import open_plain

_MAX_HEADER_BYTES = 100 * 1024 * 1024


def safetensors_error(path: Path) -> str | None:
    """Return what is wrong with the file's structure, or None if it is complete."""
    try:
        with open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > _MAX_HEADER_BYTES or 8 + length > size:
                return "its header is truncated"
            header = json.loads(file.read(length))
    except FileNotFoundError:
        return "it is missing"
    except (OSError, UnsafeFile, ValueError, RecursionError) as error:
        return f"its header cannot be read: {error}"
    end = _end_of_data(header)
    if end is None:
        return "its header has no data offsets"
    return None if 8 + length + end == size else f"it has {size} bytes, but its header implies {8 + length + end}"


def count_parameters(path: Path) -> int:
    """Return the number of values in all tensors of a complete file; packed ones, as of 4 bits, count as what they are stored in.

    Raises StorageError, OSError, ValueError for a file that is none.
    """
    with open_plain(path) as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _MAX_HEADER_BYTES:
            raise ValueError(f"{path}: its header is truncated")
        header = json.loads(file.read(length))
    entries = [entry for name, entry in header.items() if name != "__metadata__"]
    return sum(math.prod(entry["shape"]) for entry in entries)


def _end_of_data(header: Any) -> int | None:
    """Return the offset at which the last tensor ends, or None for an invalid header."""
    if not isinstance(header, dict):
        return None
    end = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        match offsets:
            case [int(first), int(last)] if 0 <= first <= last:
                end = max(end, last)
            case _:
                return None
    return end
