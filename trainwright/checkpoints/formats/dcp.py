"""Checkpoints of torch's distributed checkpoint (DCP): `__RANK_K.distcp` by every rank, then `.metadata`, renamed into place last.

`.metadata` is a pickle, which is read without executing it. It lists for every shard of a tensor the file, the offset and the
length, and so says how large every file has to be.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.formats.format import numbered_step, refusals_as_reasons
from trainwright.checkpoints.formats.inert_pickle import BadPickle, Pairs, Record, read_pickle
from trainwright.checkpoints.formats.whole_files import recorded_step
from trainwright.storage.plain_files import open_plain

_SHARD = re.compile(r"__([0-9]+)_[0-9]+\.distcp")
_RANK_METADATA = re.compile(r"__([0-9]+)\.metadata")
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


class DcpFormat:
    """A folder with `.metadata`. Weights and optimizer states may share its files, so no file is training state only."""

    name = "torch-dcp"
    expects = "__R_K.distcp and .metadata"

    def step_of(self, folder: Path) -> int | None:
        step = numbered_step(folder)
        return step if step is not None and has_dcp_files(folder) else None

    def step_of_output(self, output: Path) -> int | None:
        return recorded_step(output) if has_dcp_files(output) else None

    @refusals_as_reasons
    def incomplete_reason(self, folder: Path, step: int, world_size: int | None) -> str | None:
        return dcp_error(folder, folder, world_size)

    def is_training_state(self, path: PurePosixPath) -> bool:
        return False


def has_dcp_files(folder: Path) -> bool:
    """Whether a folder has files of DCP, complete or not. Raises OSError."""
    return folder.is_dir() and any(
        each.name == METADATA or _SHARD.fullmatch(each.name) or _RANK_METADATA.fullmatch(each.name) for each in folder.iterdir()
    )


def dcp_error(folder: Path, checkpoint: Path, world_size: int | None = None) -> str | None:
    """Return why a DCP folder in `checkpoint` is incomplete, naming the file, or None. Raises UnsafeFile, OSError.

    Without collectives there is one `__RANK.metadata` for each rank; only these are counted against `world_size`.
    """
    prefix = "" if folder == checkpoint else f"{folder.relative_to(checkpoint).as_posix()}/"
    names = {each.name for each in folder.iterdir()}
    metadata: Iterable[str]
    if METADATA in names or not any(_RANK_METADATA.fullmatch(name) for name in names):
        metadata = [METADATA]
    else:
        matches = [_RANK_METADATA.fullmatch(name) or _SHARD.fullmatch(name) for name in names]
        ranks = max(int(match[1]) + 1 for match in matches if match)
        metadata = (f"__{rank}.metadata" for rank in range(max(world_size or 0, ranks)))
    for name in metadata:
        if error := _metadata_error(folder, name, checkpoint, prefix):
            return error
    if temporary := sorted(name for name in names if name.endswith(".metadata.tmp")):  # the metadata is renamed last
        return f"{prefix}{temporary[0]} exists, so it is still being written"
    return None


def dcp_ranks(folder: Path, checkpoint: Path) -> int:
    """Return the least number of ranks that can have written a complete DCP folder. Raises UnsafeFile, OSError."""
    try:
        sizes = read_dcp_metadata(folder / METADATA, checkpoint).sizes
    except (BadPickle, FileNotFoundError):  # no number is certain; the check of the folder says what is wrong
        return 0
    return max((int(match[1]) + 1 for name in sizes if (match := _SHARD.fullmatch(name))), default=0)


def _metadata_error(folder: Path, name: str, checkpoint: Path, prefix: str) -> str | None:
    try:
        sizes = read_dcp_metadata(folder / name, checkpoint).sizes
    except (FileNotFoundError, IsADirectoryError):
        return f"{prefix}{name} is missing"
    except BadPickle as error:
        return f"{prefix}{name} is not accepted: {error}"
    for shard, needed in sorted(sizes.items()):
        try:
            with open_plain(folder / shard, checkpoint) as file:
                size = os.fstat(file.fileno()).st_size
        except (FileNotFoundError, IsADirectoryError):
            return f"{prefix}{shard} is missing"
        if size < needed:
            return f"{prefix}{shard} is truncated: it has {size} bytes, but {name} lists {needed}"
    return None


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
        if name not in sizes and (PurePosixPath(name).name != name or name in ("", "..")):
            raise BadPickle(f"it names the file {name[:100]!r}, which is not in the folder")
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


def _is_allowed(name: str) -> bool:
    return name in _ALLOWED or _TORCH_CONSTANT.fullmatch(name) is not None
