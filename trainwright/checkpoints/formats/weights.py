"""Which files of a checkpoint are weights, and whether adapters in folders of their own are complete."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.formats.json_files import MAX_JSON_BYTES
from trainwright.checkpoints.formats.model_weights import INDEX
from trainwright.checkpoints.formats.safetensors_file import safetensors_error
from trainwright.storage.plain_files import open_plain, read_plain

_ADAPTER, _ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
_SUFFIXES = (".safetensors", ".distcp", ".gguf", "_model_states.pt", "-model_states.pt")
_STEMS = ("pytorch_model", "adapter_model", "model", "consolidated")


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
        if not path.is_symlink() and ((path / _ADAPTER).exists() or (path / _ADAPTER_CONFIG).exists())
    ]


def adapters_error(folder: Path) -> str | None:
    """Return which adapter in a folder of its own is incomplete, or None. Raises UnsafeFile, OSError."""
    for path in adapter_folders(folder):
        if error := weights_file_error(path / _ADAPTER, folder):
            return error
        try:
            json.loads(read_plain(path / _ADAPTER_CONFIG, MAX_JSON_BYTES, folder))
        except FileNotFoundError:
            return f"{path.name}/{_ADAPTER_CONFIG} is missing"
        except (IsADirectoryError, ValueError, RecursionError):
            return f"{path.name}/{_ADAPTER_CONFIG} is incomplete"
    return None
