"""Checks that a model folder has complete weights: one safetensors file, an adapter's, or the shards listed in an index."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.formats.safetensors_file import safetensors_error
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain

INDEX = "model.safetensors.index.json"
_MAX_BYTES = 100 * 1024 * 1024
SINGLE, ADAPTER = "model.safetensors", "adapter_model.safetensors"


def weights_error(folder: Path) -> str | None:
    """Return which file is missing or corrupt, and why; None if the weights are complete."""
    names = [name for name in (SINGLE, ADAPTER) if (folder / name).exists()]
    if (folder / INDEX).exists():
        shards = read_shards(folder / INDEX)
        if not shards:
            return f"{INDEX} is incomplete"
        names += shards
    if not names:
        return f"no weights: none of {', '.join((SINGLE, ADAPTER, INDEX))}"
    for name in names:
        error = safetensors_error(folder / name)
        if error is not None:
            return f"{name}: {error}"
    return None


def read_shards(index: Path) -> list[str]:
    """Return the files in an index; an empty list for an index without files, or with a path outside of the folder."""
    try:
        shards = set(json.loads(read_plain(index, _MAX_BYTES, index.parent))["weight_map"].values())
    except (OSError, UnsafeFile, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return []
    inside = [name for name in shards if isinstance(name, str) and PurePosixPath(name).name == name]
    return sorted(inside) if len(inside) == len(shards) else []
