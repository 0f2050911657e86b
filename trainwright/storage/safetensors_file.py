"""Is a safetensors file whole? Its header says how long it must be: no tensor is read, nothing is unpickled.

Format: 8 bytes header length (little endian), a JSON header with `data_offsets` of every tensor, then the data.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_LONGEST_HEADER = 100 * 1024 * 1024


def damage_of(path: Path) -> str | None:
    """What is wrong with the file's structure, or None when it is whole."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > _LONGEST_HEADER or 8 + length > size:
                return "its header is cut off"
            header = json.loads(file.read(length))
    except FileNotFoundError:
        return "it is missing"
    except (OSError, ValueError, RecursionError) as error:
        return f"its header cannot be read: {error}"
    end = _end_of_data(header)
    if end is None:
        return "its header has no data offsets"
    return None if 8 + length + end == size else f"it has {size} bytes and its header says {8 + length + end}"


def _end_of_data(header: Any) -> int | None:
    """Where the last tensor ends, or None for a header that does not say it."""
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
