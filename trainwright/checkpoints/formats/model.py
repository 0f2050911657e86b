"""Final models: in the output folder itself, as `save_model` and `save_pretrained` write them, or in folders without a Trainer.

Such a folder has one file of safetensors, or shards and the index, which is written last. `HuggingFaceStorageWriter` of torch's DCP
writes them. Some of its versions give the shards their full size before the data, so a shard is known to be complete only by the
index.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.formats.format import checkpoint_step, numbered_step, refusals_as_reasons
from trainwright.checkpoints.formats.whole_files import (
    ADAPTER_CONFIG,
    CONFIG,
    INDEX,
    STATE,
    adapters_error,
    config_error,
    has_weights,
    recorded_step,
    state_error,
    weights_error,
)

_CONFIGS = (CONFIG, ADAPTER_CONFIG)
_TRAINING_STATE = ("optimizer.pt", "scheduler.pt", "scaler.pt")
_SHARD = re.compile(r"(?:shard-[0-9]+-)?model-[0-9]+-of-[0-9]+\.safetensors")
_SHARDED = "sharded"


class ModelFormat:
    """An output folder with weights and `config.json` or `adapter_config.json`. Its step is that of `trainer_state.json`, else 0."""

    name = "model"
    expects = "config.json or adapter_config.json with weights"

    def step_of(self, folder: Path) -> int | None:
        return None  # a folder in the output may be a tokenizer, a merged copy, or anything else

    def step_of_output(self, output: Path) -> int | None:
        if not output.is_dir() or not (has_weights(output) or any((output / name).exists() for name in _CONFIGS)):
            return None
        return recorded_step(output)

    @refusals_as_reasons
    def incomplete_reason(self, folder: Path, step: int, world_size: int | None) -> str | None:
        if problem := safetensors_folder_error(folder):
            return problem
        if not any((folder / name).exists() for name in _CONFIGS):
            return f"{_CONFIGS[0]} is missing"
        return state_error(folder, step) if (folder / STATE).exists() else None

    def is_training_state(self, path: PurePosixPath) -> bool:
        return path.name in _TRAINING_STATE or path.name.startswith("rng_state")


class SafetensorsFormat:
    """Numbered folders other than `checkpoint-N`, where weights alone may be an unfinished checkpoint of transformers' Trainer."""

    name = "safetensors"
    expects = "step-N with safetensors files"

    def step_of(self, folder: Path) -> int | None:
        if checkpoint_step(folder) is not None:  # a folder of the Trainer, which may be unfinished
            return None
        step = numbered_step(folder)
        return step if step is not None and folder.is_dir() and (has_weights(folder) or (folder / _SHARDED).is_dir()) else None

    @refusals_as_reasons
    def incomplete_reason(self, folder: Path, step: int, world_size: int | None) -> str | None:
        return safetensors_folder_error(folder) or (state_error(folder, step) if (folder / STATE).exists() else None)

    def is_training_state(self, path: PurePosixPath) -> bool:
        return path.name in _TRAINING_STATE or path.name.startswith("rng_state")


def safetensors_folder_error(folder: Path) -> str | None:
    """Return why the weights or configurations in a folder are incomplete, naming the file, or None.

    Raises UnsafeFile, OSError.
    """
    names = [path.name for path in folder.iterdir()]
    if INDEX not in names and (_SHARDED in names or any(_SHARD.fullmatch(name) for name in names)):
        return f"{INDEX} is missing: it is written after all shards"
    return weights_error(folder) or config_error(folder) or adapters_error(folder)
