"""Checks that files which libraries write are whole: small JSON files beside the weights, safetensors, and files of `torch.save`.

Reads no tensors and unpickles nothing. A safetensors file is 8 bytes header length (little endian), a JSON header with
`data_offsets` of every tensor, then the data. A file of `torch.save` is a zip file, whose directory is at the end;
`zipfile.is_zipfile` alone is too lenient: it also accepts a file that is cut off inside a tensor that contains another zip file.

Weights are complete as one file of safetensors, an adapter's, also in separate folders, or the shards listed in an index.
"""

from __future__ import annotations

import json
import math
import os
import struct
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import open_plain, read_plain

STATE = "trainer_state.json"
CONFIG, ADAPTER_CONFIG = "config.json", "adapter_config.json"
SINGLE, ADAPTER, INDEX = "model.safetensors", "adapter_model.safetensors", "model.safetensors.index.json"
MAX_JSON_BYTES = 256 * 1024 * 1024
"""The state contains the whole log history."""
_CONFIGS = (
    CONFIG,
    ADAPTER_CONFIG,
    "generation_config.json",
    "tokenizer_config.json",
    "tokenizer.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "params.json",
    "original_repo_id.json",
)
_COMPANIONS = (
    (ADAPTER, (ADAPTER_CONFIG,)),
    ("generation_config.json", (CONFIG, ADAPTER_CONFIG)),
)
"""A library writes the second file, or an export one of them, whenever it writes the first."""
_MAX_HEADER_BYTES = 100 * 1024 * 1024
_FIRST, _DIRECTORY, _END, _END64, _LOCATOR = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_MAX_DIRECTORY_BYTES = 256 * 1024 * 1024
"""A million tensors."""
_END_SIZE, _LOCATOR_SIZE, _END64_SIZE = 22, 20, 56
_SUFFIXES = (".safetensors", ".distcp", ".gguf", "_model_states.pt", "-model_states.pt")
_STEMS = ("pytorch_model", "adapter_model", "model", "consolidated")
_MAX_BYTES = 100 * 1024 * 1024


def config_error(folder: Path) -> str | None:
    """Return which configuration file is missing or incomplete, or None. Raises UnsafeFile, OSError."""
    for name in _CONFIGS:
        try:
            json.loads(read_plain(folder / name, MAX_JSON_BYTES, folder))
        except FileNotFoundError:  # no library writes all of them
            continue
        except (IsADirectoryError, ValueError, RecursionError):  # JSON that is cut off cannot be parsed
            return f"{name} is incomplete"
    for first, others in _COMPANIONS:
        if (folder / first).exists() and not any((folder / other).exists() for other in others):
            return f"{others[0]} is missing"
    return None


def parse_state(content: bytes) -> dict[str, object] | None:
    """Return the contents of a `trainer_state.json`, or None if they are invalid."""
    try:
        state = json.loads(content)
    except (ValueError, RecursionError):  # cut off, or not of the Trainer
        return None
    return state if isinstance(state, dict) else None


def read_state(folder: Path) -> dict[str, object] | None:
    """Return the contents of the folder's `trainer_state.json`, or None if it is missing or invalid. Raises UnsafeFile."""
    try:
        return parse_state(read_plain(folder / STATE, MAX_JSON_BYTES, folder))
    except OSError:
        return None


def training_state(folder: Path) -> dict[str, object]:
    """Return the contents of `trainer_state.json`, or an empty dict if it is missing, refused or invalid."""
    try:
        return read_state(folder) or {}
    except UnsafeFile:  # only described here: the check of the checkpoint refuses it
        return {}


def state_error(folder: Path, step: int) -> str | None:
    """Return why the folder's `trainer_state.json` is not that of `step`, or None. Raises UnsafeFile."""
    state = read_state(folder)
    if state is None:
        return f"{STATE} is missing or incomplete"
    if state.get("global_step") != step:
        return f"{STATE} is of step {state.get('global_step')}"
    return None


def recorded_step(folder: Path) -> int:
    """Return the step in the folder's `trainer_state.json`, or 0 without a valid one."""
    step = training_state(folder).get("global_step")
    return step if isinstance(step, int) and step >= 0 else 0


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
        if name == "__metadata__":  # not a tensor
            continue
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        match offsets:
            case [int(first), int(last)] if 0 <= first <= last:
                end = max(end, last)
            case _:
                return None
    return end


def torch_file_error(path: Path, within: Path) -> str | None:
    """Return why a file of `torch.save` is incomplete, naming it relative to `within`, or None. Raises UnsafeFile, OSError."""
    name = path.relative_to(within).as_posix()
    try:
        with open_plain(path, within) as file:
            return None if zip_directory_bytes(file) is not None else f"{name} is truncated or not a zip file of torch.save"
    except FileNotFoundError:
        return f"{name} is missing"
    except IsADirectoryError:
        return f"{name} is a folder, not a file"


def is_zip(path: Path, within: Path) -> bool:
    """Whether a file begins like a zip file. Older ones of `torch.save` do not. Raises UnsafeFile, OSError."""
    with open_plain(path, within) as file:
        return file.read(len(_FIRST)) == _FIRST


def zip_directory_bytes(file: BinaryIO) -> int | None:
    """Return the size of a zip file's directory; None unless a header is at the start and the directory ends where it should.

    Leaves the file at an arbitrary position. Reads a few bytes only.
    """
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    if size < _END_SIZE or file.read(len(_FIRST)) != _FIRST:
        return None
    file.seek(size - _END_SIZE)
    signature, _, _, _, _, directory_size, directory, comment = struct.unpack("<4s4H2LH", file.read(_END_SIZE))
    if signature != _END or comment:  # `torch.save` writes no comment
        return None
    end = size - _END_SIZE
    if end >= _LOCATOR_SIZE + _END64_SIZE:
        file.seek(end - _LOCATOR_SIZE)
        signature, _, end64, _ = struct.unpack("<4sLQL", file.read(_LOCATOR_SIZE))
        if signature == _LOCATOR:
            if end64 != end - _LOCATOR_SIZE - _END64_SIZE:  # the locator must lie right behind the record of zip64
                return None
            file.seek(end64)
            signature, *_, directory_size, directory = struct.unpack("<4sQ2H2L4Q", file.read(_END64_SIZE))
            if signature != _END64:
                return None
            end = end64
    if not 0 < directory_size <= _MAX_DIRECTORY_BYTES or directory + directory_size != end:
        return None
    file.seek(directory)
    return directory_size if file.read(len(_DIRECTORY)) == _DIRECTORY else None


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
        if not path.is_symlink() and ((path / ADAPTER).exists() or (path / ADAPTER_CONFIG).exists())
    ]


def adapters_error(folder: Path) -> str | None:
    """Return which adapter in a folder of its own is incomplete, or None. Raises UnsafeFile, OSError."""
    for path in adapter_folders(folder):
        if error := weights_file_error(path / ADAPTER, folder):
            return error
        try:
            json.loads(read_plain(path / ADAPTER_CONFIG, MAX_JSON_BYTES, folder))
        except FileNotFoundError:
            return f"{path.name}/{ADAPTER_CONFIG} is missing"
        except (IsADirectoryError, ValueError, RecursionError):
            return f"{path.name}/{ADAPTER_CONFIG} is incomplete"
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
        # An index that is not whole lists nothing.
        return []
    inside = [name for name in shards if isinstance(name, str) and PurePosixPath(name).name == name]
    return sorted(inside) if len(inside) == len(shards) else []
