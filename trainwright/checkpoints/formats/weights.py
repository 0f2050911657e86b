"""Which files of a checkpoint are weights, and whether they are complete, also those of adapters in separate folders.

Complete is one file of safetensors, an adapter's, or the shards listed in an index.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.formats.whole_files import MAX_JSON_BYTES, safetensors_error
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import open_plain, read_plain

_ADAPTER_CONFIG = "adapter_config.json"
_SUFFIXES = (".safetensors", ".distcp", ".gguf", "_model_states.pt", "-model_states.pt")
_STEMS = ("pytorch_model", "adapter_model", "model", "consolidated")
INDEX = "model.safetensors.index.json"
_MAX_BYTES = 100 * 1024 * 1024
SINGLE, ADAPTER = "model.safetensors", "adapter_model.safetensors"


def is_weights(path: PurePosixPath) -> bool:
    """Whether a file has the name of weights in one of the known formats."""
    return path.name.endswith(_SUFFIXES) or (path.suffix in (".bin", ".pt", ".pth") and path.name.startswith(_STEMS))


def has_weights(folder: Path) -> bool:
    """Whether there is a safetensors file or an index of them, complete or not. Raises OSError."""
    return any(path.name == INDEX or path.name.endswith(".safetensors") for path in folder.iterdir())


def weights_file_error(path: Path, within: Path) -> str | None:
    """Return why a safetensors file is incomplete, naming it relative to `within`, or None. Raises UnsafeFile, OSError."""
    name = path.relative_to(within).as_posix()
    try:
        open_plain(path, within).close()
    except FileNotFoundError:
        return f"{name} is missing"
    error = safetensors_error(path)
    return f"{name}: {error}" if error else None


def adapter_folders(folder: Path) -> list[Path]:
    """Return the folders with an adapter: peft writes all adapters but the one named `default` to folders. Raises OSError."""
    return [
        path
        for path in sorted(folder.iterdir())
        if not path.is_symlink() and ((path / ADAPTER).exists() or (path / _ADAPTER_CONFIG).exists())
    ]


def adapters_error(folder: Path) -> str | None:
    """Return which adapter in a folder of its own is incomplete, or None. Raises UnsafeFile, OSError."""
    for path in adapter_folders(folder):
        if error := weights_file_error(path / ADAPTER, folder):
            return error
        try:
            json.loads(read_plain(path / _ADAPTER_CONFIG, MAX_JSON_BYTES, folder))
        except FileNotFoundError:
            return f"{path.name}/{_ADAPTER_CONFIG} is missing"
        except (IsADirectoryError, ValueError, RecursionError):
            return f"{path.name}/{_ADAPTER_CONFIG} is incomplete"
    return None


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
