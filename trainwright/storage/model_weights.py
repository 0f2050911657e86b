"""Does a model folder have all its weights, whole? One safetensors file, an adapter's, or the shards that an index lists."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

from trainwright.storage.safetensors_file import damage_of

INDEX = "model.safetensors.index.json"
_SINGLE = ("model.safetensors", "adapter_model.safetensors")


def weights_damage(folder: Path) -> str | None:
    """Which file is missing or damaged, and how; None when all weights are there."""
    names = [name for name in _SINGLE if (folder / name).exists()]
    if (folder / INDEX).exists():
        shards = _shards(folder / INDEX)
        if not shards:
            return f"{INDEX} is not whole"
        names += shards
    if not names:
        return f"no weights: none of {', '.join((*_SINGLE, INDEX))}"
    for name in names:
        damage = damage_of(folder / name)
        if damage is not None:
            return f"{name}: {damage}"
    return None


def _shards(index: Path) -> list[str]:
    """The files that an index lists; empty for an index that lists none, or names something outside of the folder."""
    try:
        shards = set(json.loads(index.read_bytes())["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return []
    inside = [name for name in shards if isinstance(name, str) and PurePosixPath(name).name == name]
    return sorted(inside) if len(inside) == len(shards) else []
