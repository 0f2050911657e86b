"""Folders `epoch_N` and `step_N` of torchtune: shards, their index, the adapter and its configuration, then copied configurations.

With `save_last_epoch_only` or for the last epoch there is no recipe state; otherwise it is written last.
"""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.formats.format import refusals_as_reasons
from trainwright.checkpoints.formats.whole_files import (
    ADAPTER,
    ADAPTER_CONFIG,
    CONFIG,
    INDEX,
    MAX_JSON_BYTES,
    config_error,
    torch_file_error,
    weights_error,
    weights_file_error,
)
from trainwright.storage.plain_files import read_plain

_NAME = re.compile(r"(?:epoch|step)_([0-9]+)")
_SHARD = re.compile(r"model-([0-9]+)-of-([0-9]+)\.(bin|safetensors)")
_TORCH_INDEX = "pytorch_model.bin.index.json"
_ADAPTERS = ("adapter_model.pt", "adapter_model.bin", ADAPTER)
_PEFT_ADAPTERS = _ADAPTERS[1:]
_CONFIGS = (CONFIG, "params.json")
_RECIPE = "recipe_state"


class TorchtuneFormat:
    """torchtune's checkpoints in the formats of Hugging Face, Meta and its own. Its distributed ones are of torch DCP."""

    name = "torchtune"
    expects = "epoch_N or step_N with shards or an adapter"

    def step_of(self, folder: Path) -> int | None:
        match = _NAME.fullmatch(folder.name)
        if not match or not folder.is_dir():
            return None
        names = {path.name for path in folder.iterdir()}
        has_files = bool(names & {INDEX, _TORCH_INDEX, *_ADAPTERS}) or any(_SHARD.fullmatch(name) for name in names)
        return int(match[1]) if has_files else None

    @refusals_as_reasons
    def incomplete_reason(self, folder: Path, step: int, world_size: int | None) -> str | None:
        names = {path.name for path in folder.iterdir()}
        problem = _shards_error(folder, names) or _adapter_error(folder, names) or config_error(folder)
        if problem:
            return problem
        if not names & set(_CONFIGS):  # copied after everything else
            return f"{' or '.join(_CONFIGS)} is missing"
        for path in sorted([*folder.glob("*.pt"), *folder.glob("*.bin"), *folder.glob(f"{_RECIPE}/*.pt")]):
            if error := torch_file_error(path, folder):
                return error
        return None

    def is_training_state(self, path: PurePosixPath) -> bool:
        return _RECIPE in path.parts or path.name == f"{_RECIPE}.pt"


def _shards_error(folder: Path, names: set[str]) -> str | None:
    """Meta's and torchtune's own formats have one torch file without an index; several files always have one."""
    shards = [match for name in names if (match := _SHARD.fullmatch(name))]
    if INDEX in names:
        return weights_error(folder)
    if _TORCH_INDEX in names:
        listed = _listed_files(folder)
        if not listed:
            return f"{_TORCH_INDEX} is incomplete"
        return next((f"{name} is missing" for name in listed if name not in names), None)
    if any(match[3] == "safetensors" for match in shards):
        return f"{INDEX} is missing: it is written after all shards"
    if any(int(match[2]) > 1 for match in shards):
        return f"{_TORCH_INDEX} is missing: it is written after all shards"
    if not shards and not names & set(_ADAPTERS):
        return f"no weights: none of {INDEX}, {_TORCH_INDEX}, {', '.join(_ADAPTERS)}"
    return None


def _listed_files(folder: Path) -> list[str]:
    """Return the files in the index of torch files; an empty list for an invalid one. Raises UnsafeFile, OSError."""
    try:
        listed = set(json.loads(read_plain(folder / _TORCH_INDEX, MAX_JSON_BYTES, folder))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):  # an index that is not whole lists nothing
        return []
    return sorted(listed) if all(isinstance(name, str) and PurePosixPath(name).name == name for name in listed) else []


def _adapter_error(folder: Path, names: set[str]) -> str | None:
    if _PEFT_ADAPTERS[1] in names and (error := weights_file_error(folder / _PEFT_ADAPTERS[1], folder)):
        return error
    if names & set(_PEFT_ADAPTERS) and ADAPTER_CONFIG not in names:
        return f"{ADAPTER_CONFIG} is missing"
    if ADAPTER_CONFIG in names and not names & set(_PEFT_ADAPTERS):
        return f"{' or '.join(_PEFT_ADAPTERS)} is missing"
    if names & set(_PEFT_ADAPTERS) and _ADAPTERS[0] not in names:
        return f"{_ADAPTERS[0]} is missing"
    return None
