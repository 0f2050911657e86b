"""Reads a LoRA adapter of PEFT: what is added to which weight of the base model, or replaces it.

Only what is certainly understood is read. Variants of LoRA that compute their weights otherwise are refused, as is any setting that
is not known: a merge that ignores one would be another model.

Single tensors of a safetensors file are read and replaced, so that a merge needs the memory of a few tensors, and no torch. Format:
8 bytes header length (little endian), a JSON header with type, shape and offsets of every tensor, then the data.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.formats.whole_files import ADAPTER, ADAPTER_CONFIG, safetensors_error
from trainwright.storage.plain_files import open_plain, read_plain
from trainwright.text.text_input import read_json

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float32]]

_PREFIX = "base_model.model."
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"
_MAX_CONFIG_BYTES = 4 * 1024 * 1024
_READ = {"peft_type", "r", "lora_alpha", "use_rslora", "fan_in_fan_out", "bias", "init_lora_weights", "rank_pattern"}
"""Settings that are read; the rank of each weight is that of its factors."""
_WITHOUT_EFFECT = {
    "task_type",
    "auto_mapping",
    "peft_version",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "target_modules",
    "exclude_modules",
    "lora_dropout",
    "modules_to_save",
    "layers_to_transform",
    "layers_pattern",
    "megatron_core",
    "runtime_config",
    "qalora_group_size",
}
"""On the merged weights: they say which weights were trained, which the file says too, or how."""
_PLAIN_STARTS = (True, False, None, "gaussian")
"""Ways to begin a training that leave the base model as it is."""
_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
"""Of a number, by type: those that weights have which can be added to."""


@dataclass(frozen=True)
class Change:
    """What the adapter does to one weight of the base model: it adds the product of the factors `up` and `down`, times `scale`, or
    replaces it by `whole`. These are names of weights of the adapter.
    """

    scale: float = 1.0
    down: str = ""
    up: str = ""
    whole: str = ""
    is_transposed: bool = False


@dataclass(frozen=True)
class LoraAdapter:
    """The changes of an adapter by the name of the weight in the base model."""

    file: TensorFile
    changes: Mapping[str, Change]

    def apply(self, name: str, weight: Array) -> Array:
        """Return the merged weight, in float32. Raises CheckpointError if the shapes do not fit."""
        change = self.changes[name]
        if change.whole:
            merged = self.file.read(change.whole)
        else:
            added = self.file.read(change.up) @ self.file.read(change.down) * change.scale
            added = added.T if change.is_transposed else added
            if added.shape != weight.shape:
                raise CheckpointError(f"{self.file.path}: {name} is {added.shape}, and {weight.shape} in the base model")
            added += weight
            merged = added
        return merged


def read_lora(folder: Path) -> LoraAdapter:
    """Read the adapter in a folder. Raises CheckpointError for one that cannot be merged here, saying why, and StorageError."""
    config = _config(folder)
    file = TensorFile.open(folder / ADAPTER)
    changes: dict[str, Change] = {}
    for key in file.tensors:
        if not key.startswith(_PREFIX):
            raise _refused(folder, f"the weight {key[:120]!r} does not begin with {_PREFIX}")
        name = key.removeprefix(_PREFIX)
        if name.endswith(_UP):
            continue  # read with the other factor
        if name.endswith(_DOWN):
            module = name.removesuffix(_DOWN)
            changes[f"{module}.weight"] = _factors(folder, file, f"{_PREFIX}{module}", config)
        elif "lora_" in name:
            raise _refused(folder, f"the weight {name[:120]!r} belongs to a variant of LoRA")
        else:  # of modules_to_save
            changes[name] = Change(whole=key)
    for key in file.tensors:
        if key.endswith(_UP) and f"{key.removesuffix(_UP)}{_DOWN}" not in file.tensors:
            raise _refused(folder, f"{key[:120]!r} has no {_DOWN}")
    if not changes:
        raise _refused(folder, "it has no weights")
    return LoraAdapter(file, changes)


def _factors(folder: Path, file: TensorFile, module: str, config: Mapping[str, Any]) -> Change:
    down, up = f"{module}{_DOWN}", f"{module}{_UP}"
    if up not in file.tensors:
        raise _refused(folder, f"{down[:120]!r} has no {_UP}")
    shapes = file.tensors[down].shape, file.tensors[up].shape
    if any(len(shape) != 2 for shape in shapes) or shapes[0][0] != shapes[1][1] or not shapes[0][0]:
        raise _refused(folder, f"the factors of {module[:120]!r} have the shapes {shapes[0]} and {shapes[1]}")
    rank = shapes[0][0]
    scale = float(config["lora_alpha"]) / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return Change(scale, down, up, is_transposed=bool(config.get("fan_in_fan_out")))


def _config(folder: Path) -> Mapping[str, Any]:
    try:
        config = read_json(read_plain(folder / ADAPTER_CONFIG, _MAX_CONFIG_BYTES, folder).decode())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / ADAPTER_CONFIG} cannot be read: {error}") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        found = config.get("peft_type") if isinstance(config, dict) else None
        raise _refused(folder, f"it is of type {found!r}, and only LORA is merged")
    alpha = config.get("lora_alpha")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise _refused(folder, f"lora_alpha is {alpha!r}")
    if config.get("bias", "none") != "none":
        raise _refused(folder, f"bias is {config['bias']!r}: it trained biases too")
    if config.get("init_lora_weights") not in _PLAIN_STARTS:
        raise _refused(folder, f"init_lora_weights is {config['init_lora_weights']!r}, which changes the base model")
    for name, value in config.items():
        if name not in _READ | _WITHOUT_EFFECT and value:
            raise _refused(folder, f"its setting {name[:80]} is {str(value)[:80]!r}")
    return config


def _refused(folder: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"{folder}: the adapter cannot be merged: {reason}. Merge it with PEFT (merge_and_unload), or leave merge_adapter out"
    )


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
    if tensor.dtype == "BF16":  # numpy has no bfloat16
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
