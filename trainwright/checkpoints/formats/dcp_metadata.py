"""Reads the `.metadata` of torch's distributed checkpoint (DCP), a pickle, without executing it.

It lists for every shard of a tensor the file, the offset and the length. So it says how large every file has to be.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.formats.inert_pickle import BadPickle, Pairs, Record, read_pickle
from trainwright.storage.plain_files import open_plain

METADATA = ".metadata"
_MAX_BYTES = 512 * 1024 * 1024
_DCP = "torch.distributed.checkpoint"
_METADATA_CLASS, _STORAGE_CLASS = f"{_DCP}.metadata.Metadata", f"{_DCP}.filesystem._StorageInfo"
_OLD_PROPERTIES = "torch.distributed._shard.sharded_tensor.metadata"
_ALLOWED = {
    _METADATA_CLASS,
    _STORAGE_CLASS,
    f"{_DCP}.filesystem._StoragePrefix",
    *(
        f"{_DCP}.metadata.{name}"
        for name in (
            "MetadataIndex",
            "TensorStorageMetadata",
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "TensorProperties",
            "StorageMeta",
            "_MEM_FORMAT_ENCODING",
        )
    ),
    f"{_OLD_PROPERTIES}.TensorProperties",
    f"{_OLD_PROPERTIES}.MEM_FORMAT_ENCODING",
    "torch.Size",
    "torch.serialization._get_layout",
    "collections.OrderedDict",
    *(f"{module}.{name}" for module in ("pathlib", "pathlib._local") for name in ("PosixPath", "PurePosixPath", "WindowsPath")),
    *(f"builtins.{name}" for name in ("list", "dict", "tuple", "set", "frozenset", "bool", "int", "float", "str", "bytes")),
}
_TORCH_CONSTANT = re.compile(
    r"torch\.(?:bool|half|float|double|short|int|long|(?:bfloat|float|int|uint|complex|bits|qint|quint)[0-9][0-9a-z_]*"
    r"|strided|sparse_[a-z]+|contiguous_format|channels_last(?:_3d)?|preserve_format)"
)
"""Types, layouts and memory formats of tensors are pickled as `torch.NAME`."""


@dataclass(frozen=True)
class DcpMetadata:
    """`sizes`: the least size in bytes of each file. `keys`: the names of the saved values, such as `model.layers.0.weight`."""

    sizes: dict[str, int]
    keys: tuple[str, ...]


_KEPT = 16
_read: dict[tuple[int, int, int, int], DcpMetadata] = {}
"""By the identity, size and time of the file."""


def read_dcp_metadata(path: Path, within: Path, *, kept: int = _KEPT) -> DcpMetadata:
    """Read a `.metadata` file. Raises BadPickle for anything else, UnsafeFile, OSError.

    The last `kept` results are kept, because a checkpoint is checked several times until it is exported.
    """
    with open_plain(path, within) as file:
        found = os.fstat(file.fileno())
        if found.st_size > _MAX_BYTES:
            raise BadPickle(f"it is larger than {_MAX_BYTES} bytes")
        key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if key not in _read:
            while len(_read) >= kept:
                _read.pop(next(iter(_read)), None)
            _read[key] = _parsed(file.read(_MAX_BYTES))
        return _read[key]


def _parsed(content: bytes) -> DcpMetadata:
    found = read_pickle(content, _is_allowed)
    if not isinstance(found, Record) or found.name != _METADATA_CLASS or not isinstance(found.state, Pairs):
        raise BadPickle("it is not the metadata of a torch distributed checkpoint")
    storage, values = found.state.get("storage_data"), found.state.get("state_dict_metadata")
    if not isinstance(storage, Pairs) or not isinstance(values, Pairs):
        raise BadPickle("it lists no files")
    sizes: dict[str, int] = {}
    seen: set[int] = set()
    for _, entry in storage.items:
        state = entry.state if isinstance(entry, Record) and entry.name == _STORAGE_CLASS else None
        if id(state) in seen:  # many entries may share one that is large
            continue
        seen.add(id(state))
        name, end = _extent(state)
        if name not in sizes:
            _check_file_name(name)
        sizes[name] = max(sizes.get(name, 0), end)
    keys = tuple(key for key, _ in values.items if isinstance(key, str))
    if keys and not sizes:
        raise BadPickle("it lists no files")
    return DcpMetadata(sizes, keys)


def _extent(state: object) -> tuple[str, int]:
    """Return the file name of an entry with this state, and where its data ends."""
    if isinstance(state, Pairs):
        match [state.get(key) for key in ("relative_path", "offset", "length")]:
            case [str(name), int(offset), int(length)] if offset >= 0 and length >= 0:
                return name, offset + length
    raise BadPickle("it has an entry without file, offset and length")


def _check_file_name(name: str) -> None:
    if PurePosixPath(name).name != name or name in ("", ".."):
        raise BadPickle(f"it names the file {name[:100]!r}, which is not in the folder")


def _is_allowed(name: str) -> bool:
    return name in _ALLOWED or _TORCH_CONSTANT.fullmatch(name) is not None
