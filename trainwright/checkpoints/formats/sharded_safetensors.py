"""Folders of safetensors files without a Trainer: one file, or shards and the index, which is written last.

`HuggingFaceStorageWriter` of torch's DCP writes such folders. Some of its versions give the shards their full size before the data,
so a shard is known to be complete only by the index.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.formats.folder_names import checkpoint_step, numbered_step
from trainwright.checkpoints.formats.format import refusals_as_reasons
from trainwright.checkpoints.formats.json_files import STATE, config_error, state_error
from trainwright.checkpoints.formats.model_weights import INDEX, weights_error
from trainwright.checkpoints.formats.weights import adapters_error, has_weights

_SHARD = re.compile(r"(?:shard-[0-9]+-)?model-[0-9]+-of-[0-9]+\.safetensors")
_SHARDED = "sharded"
_TRAINING_STATE = ("optimizer.pt", "scheduler.pt", "scaler.pt")


class SafetensorsFormat:
    """Numbered folders other than `checkpoint-N`, where weights alone may be an unfinished checkpoint of transformers' Trainer."""

    name = "safetensors"
    expects = "step-N with safetensors files"

    def step_of(self, folder: Path) -> int | None:
        if checkpoint_step(folder) is not None:
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
