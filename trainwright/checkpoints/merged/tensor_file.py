"""Reads and replaces single tensors of a safetensors file, so that a merge needs the memory of a few tensors, and no torch.

Format: 8 bytes header length (little endian), a JSON header with type, shape and offsets of every tensor, then the data.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.formats.whole_files import safetensors_error
from trainwright.storage.plain_files import open_plain

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float32]]

_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
"""Of a number, by type: those that weights have which can be added to."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file: its name, type, shape, and where its bytes begin."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    size: int


@dataclass(frozen=True)
class TensorFile:
    """A complete safetensors file and the tensors in it by name."""

    path: Path
    tensors: dict[str, Tensor]

    @classmethod
    def open(cls, path: Path) -> TensorFile:
        """Read the header. Raises CheckpointError for a file that is incomplete."""
        if error := safetensors_error(path):
            raise CheckpointError(f"{path}: {error}")
        with open_plain(path) as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        tensors = {name: _tensor(path, name, entry, 8 + length) for name, entry in header.items() if name != "__metadata__"}
        return cls(path, tensors)

    def read(self, name: str) -> Array:
        """Return a tensor in float32. Raises CheckpointError for a type that is no float."""
        tensor = self.tensors[name]
        with open_plain(self.path) as file:
            file.seek(tensor.begin)
            return _decoded(self.path, tensor, file.read(tensor.size))

    def replace(self, file: BinaryIO, name: str, values: Array) -> str:
        """Write a tensor into a copy of this file, which is open for writing, in the type of the file. Returns its SHA-256.

        Raises CheckpointError for another shape, and for values that are not finite or not in that type.
        """
        import numpy as np

        tensor = self.tensors[name]
        if values.shape != tensor.shape:
            raise CheckpointError(f"{self.path}: {name} has the shape {tensor.shape}, and the merged one {values.shape}")
        content = _encoded(self.path, tensor, values)
        if not np.isfinite(_decoded(self.path, tensor, content)).all():
            raise CheckpointError(f"{self.path}: the merged {name} has values that are not finite in {tensor.dtype}")
        file.seek(tensor.begin)
        file.write(content)
        return hashlib.sha256(content).hexdigest()

    def by_offset(self) -> list[Tensor]:
        """Return the tensors as they lie in the file."""
        return sorted(self.tensors.values(), key=lambda tensor: tensor.begin)


def _tensor(path: Path, name: str, entry: Any, data: int) -> Tensor:
    try:
        (first, last), shape, dtype = entry["data_offsets"], tuple(entry["shape"]), str(entry["dtype"])
        tensor = Tensor(name, dtype, tuple(int(size) for size in shape), data + int(first), int(last) - int(first))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: the header's entry of {name[:80]!r} is invalid: {error}") from error
    numbers = 1
    for size in tensor.shape:
        numbers *= size
    if dtype in _BYTES and tensor.size != numbers * _BYTES[dtype]:
        raise CheckpointError(f"{path}: {name[:80]!r} has {tensor.size} bytes, but its shape {tensor.shape} in {dtype} has not")
    return tensor


def _decoded(path: Path, tensor: Tensor, content: bytes) -> Array:
    import numpy as np

    _require_float(path, tensor)
    if tensor.dtype == "BF16":  # the upper half of a float32
        return (np.frombuffer(content, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(tensor.shape)
    return np.frombuffer(content, "<f4" if tensor.dtype == "F32" else "<f2").astype(np.float32).reshape(tensor.shape)


def _encoded(path: Path, tensor: Tensor, values: Array) -> bytes:
    """Round to nearest, ties to even, as torch does."""
    import numpy as np

    _require_float(path, tensor)
    if tensor.dtype == "BF16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    with np.errstate(over="ignore"):  # what becomes infinite is found by the check of the merged weights
        return values.astype("<f4" if tensor.dtype == "F32" else "<f2").tobytes()


def _require_float(path: Path, tensor: Tensor) -> None:
    if tensor.dtype not in _BYTES:
        raise CheckpointError(
            f"{path}: {tensor.name[:80]!r} is of type {tensor.dtype}; only weights in {', '.join(_BYTES)} are merged: "
            "use the base model before its quantization"
        )
