"""`checkpoint-N` folders of transformers' Trainer, with one rank or many, with DeepSpeed or FSDP.

The Trainer writes weights, then optimizer and random states, and `trainer_state.json` last, but not atomically and without waiting
for other ranks. So the existence of the folder does not mean that it is complete.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.formats.deepspeed import (
    LATEST,
    deepspeed_error,
    deepspeed_states,
    has_deepspeed_files,
    is_state_folder,
)
from trainwright.checkpoints.formats.folder_names import checkpoint_step
from trainwright.checkpoints.formats.format import refusals_as_reasons
from trainwright.checkpoints.formats.fsdp import MODEL, OPTIMIZER, FsdpFiles
from trainwright.checkpoints.formats.json_files import config_error, state_error
from trainwright.checkpoints.formats.model_weights import weights_error
from trainwright.checkpoints.formats.random_states import is_random_state, missing_random_state
from trainwright.checkpoints.formats.torch_file import torch_file_error
from trainwright.checkpoints.formats.weights import adapter_folders, adapters_error, has_weights

SCHEDULER = "scheduler.pt"
_XLA_OPTIMIZER = re.compile(r"rank([0-9]+)-of-([0-9]+)-optimizer\.pt")
_STATE_NAMES = (
    "optimizer.pt",
    SCHEDULER,
    "scaler.pt",
    LATEST,
    "zero_to_fp32.py",
    "zero_to_torch.py",
)
_OPTIMIZER_FILE = re.compile(r"optimizer(?:_[0-9]+)?(?:_rank[0-9]+)?\.bin")
_OPTIMIZER_FOLDER = re.compile(r"optimizer_[0-9]+")


class HfTrainerFormat:
    """Folders named `checkpoint-N` that transformers' Trainer can resume from."""

    name = "hf-trainer"
    expects = "checkpoint-N with trainer_state.json"

    def step_of(self, folder: Path) -> int | None:
        return checkpoint_step(folder)

    @refusals_as_reasons
    def incomplete_reason(self, folder: Path, step: int, world_size: int | None) -> str | None:
        problem = state_error(folder, step) or _weights_error(folder) or config_error(folder) or adapters_error(folder)
        return problem or _torch_files_error(folder) or _training_state_error(folder, world_size)

    def is_training_state(self, path: PurePosixPath) -> bool:
        """DeepSpeed's folder counts as a whole: the Trainer writes the weights beside it, unless ZeRO-3 does not gather them."""
        first = path.parts[0]
        if len(path.parts) > 1:
            return is_state_folder(first) or _OPTIMIZER_FOLDER.fullmatch(first) is not None
        return first in _STATE_NAMES or is_random_state(first) or _is_optimizer_file(first)


def _is_optimizer_file(name: str) -> bool:
    return _OPTIMIZER_FILE.fullmatch(name) is not None or _XLA_OPTIMIZER.fullmatch(name) is not None


def _weights_error(folder: Path) -> str | None:
    """Weights are missing only where another part has them: FSDP's sharded model, or ZeRO-3 without gathering."""
    error = weights_error(folder)
    if error is None or has_weights(folder):
        return error
    if adapter_folders(folder):
        return None  # checked on their own
    fsdp = FsdpFiles(folder)
    if fsdp.has(MODEL) and not fsdp.has_full_model:
        return None
    if has_deepspeed_files(folder):
        if problem := deepspeed_error(folder, None):
            return problem
        states = deepspeed_states(folder)
        parallelism = states.parallelism() if states else None
        if states and states.is_partitioned and not (parallelism and parallelism.gathers_weights):
            return None
    return error


def _torch_files_error(folder: Path) -> str | None:
    for path in sorted(folder.glob("*.pt")) + sorted(folder.glob("*.pth")):
        if error := torch_file_error(path, folder):
            return error
    return None


def _training_state_error(folder: Path, world_size: int | None) -> str | None:
    """The Trainer writes optimizer, scheduler and random states together, or, with `save_only_model`, none of them."""
    names = {path.name for path in folder.iterdir()}
    fsdp = FsdpFiles(folder)
    if error := fsdp.error(world_size):
        return error
    has_deepspeed = has_deepspeed_files(folder) or LATEST in names
    has_optimizer = "optimizer.pt" in names or fsdp.has(OPTIMIZER) or any(_XLA_OPTIMIZER.fullmatch(name) for name in names)
    has_random_state = any(is_random_state(name) for name in names)
    if not (has_deepspeed or has_optimizer or has_random_state or SCHEDULER in names):
        return None
    least_ranks = fsdp.ranks
    if has_deepspeed:
        if error := deepspeed_error(folder, world_size):
            return error
        states = deepspeed_states(folder)
        parallelism = states.parallelism() if states else None
        if parallelism and not parallelism.has_scheduler and SCHEDULER not in names:
            return f"{SCHEDULER} is missing"
        least_ranks = max(least_ranks, parallelism.ranks if parallelism else 0)
    elif not has_optimizer:
        return "optimizer.pt is missing, and there is no other optimizer state"
    elif SCHEDULER not in names:
        return f"{SCHEDULER} is missing"
    return _missing_xla_part(names) or missing_random_state(folder, world_size, least_ranks)


def _missing_xla_part(names: set[str]) -> str | None:
    matches = [match for name in names if (match := _XLA_OPTIMIZER.fullmatch(name))]
    for count in sorted({int(match[2]) for match in matches}):
        found = {int(match[1]) for match in matches if int(match[2]) == count}
        missing = next((rank for rank in range(count) if rank not in found), None)
        if missing is not None:
            return f"rank{missing}-of-{count}-optimizer.pt is missing"
    return None
