"""The state that transformers' Trainer writes to a checkpoint, and whether a `checkpoint-N` folder of it is complete."""

from __future__ import annotations

from pathlib import Path

from trainwright.checkpoints.formats.format import checkpoint_step as step_of
from trainwright.checkpoints.formats.hf_trainer import HfTrainerFormat
from trainwright.checkpoints.formats.whole_files import STATE, parse_state, training_state

__all__ = ["FORMAT", "STATE", "has_reached_end", "incomplete_reason", "parse_state", "step_of", "training_state"]

FORMAT = HfTrainerFormat.name


def has_reached_end(folder: Path) -> bool | None:
    """Whether the training of a checkpoint had no step left, by its state; None without a state, as where it was just moved away."""
    state = training_state(folder)
    if not state:
        return None
    step, steps = state.get("global_step"), state.get("max_steps")
    return isinstance(step, int) and isinstance(steps, int) and 0 < steps <= step


def incomplete_reason(folder: Path, step: int | None = None, world_size: int | None = None) -> str | None:
    """Return why the checkpoint is incomplete, or None. `step` defaults to the one in the folder's name. Raises OSError."""
    step = step_of(folder) if step is None else step
    if step is None:
        return f"{folder.name} is not named checkpoint-N"
    return HfTrainerFormat().incomplete_reason(folder, step, world_size)
