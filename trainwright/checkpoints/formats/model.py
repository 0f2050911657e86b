"""A final model in the output folder itself, as `save_model` and `save_pretrained` write it after training."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from trainwright.checkpoints.formats.format import refusals_as_reasons
from trainwright.checkpoints.formats.json_files import STATE, recorded_step, state_error
from trainwright.checkpoints.formats.sharded_safetensors import safetensors_folder_error
from trainwright.checkpoints.formats.weights import has_weights

_CONFIGS = ("config.json", "adapter_config.json")
_TRAINING_STATE = ("optimizer.pt", "scheduler.pt", "scaler.pt")


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
