"""Selects the checkpoint of an output folder to export: that of a step, the last one, or the one that training found best.

The best one is what transformers' Trainer has recorded in `trainer_state.json`. A Trainer that loads it at its end has trained that
model, whatever it has written later.
"""

from __future__ import annotations

import logging
from pathlib import Path, PurePosixPath
from typing import Literal

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.find import Checkpoint, find_checkpoints, latest_checkpoint
from trainwright.checkpoints.hf_trainer import STATE, step_of, training_state
from trainwright.checkpoints.job_record import recorded_writers
from trainwright.checkpoints.training_start import is_restored

log = logging.getLogger(__name__)
Which = Literal["", "last", "best"]
"""Empty: the best one if the training loads it at its end (`--load_best_model_at_end`), else the last."""
_BEST = "best_model_checkpoint"


def select_checkpoint(folder: Path, step: int | None = None, which: Which = "") -> Checkpoint:
    """Return the complete checkpoint of `step` below `folder`, or without a step the last or the best one.

    Raises NoCheckpoint, CheckpointError (it is incomplete; training recorded no best one), StorageError.
    """
    if step is not None:
        if which:
            raise CheckpointError(f"step {step} and which={which!r} both select a checkpoint; give one of them")
        return _of_step(folder, step)
    last = latest_checkpoint(folder)
    if which == "last":
        return last
    recorded = _recorded_best(last)
    if which == "best":
        return _best(folder, last, recorded)
    if not recorded or not _loads_best(folder):
        return last
    try:
        return _best(folder, last, recorded)
    except NoCheckpoint as error:
        if not any(is_restored(folder, each.path.name) for each in find_checkpoints(folder)):
            raise
        # It is of the training whose export this one has resumed from. The Trainer does not find it either, and keeps the last.
        log.warning("event=best_checkpoint_missing exported=%s reason=%r", last.path.name, str(error))
        return last


def _of_step(folder: Path, step: int) -> Checkpoint:
    candidates = find_checkpoints(folder)
    for candidate in candidates:
        if candidate.step == step:
            return _complete(candidate)
    steps = ", ".join(str(candidate.step) for candidate in candidates) or "none"
    raise NoCheckpoint(f"{folder} has no checkpoint of step {step}; available steps: {steps}")


def _best(folder: Path, last: Checkpoint, recorded: str) -> Checkpoint:
    if not recorded:
        raise NoCheckpoint(
            f"{last.path / STATE} names no best checkpoint: training compares its checkpoints only with eval_strategy and "
            "--load_best_model_at_end, or --metric_for_best_model, among its arguments; train with these, or export the last one"
        )
    # A pod has written its own path. Only the name is used, so that nothing outside of the folder is exported.
    name = PurePosixPath(recorded.replace("\\", "/")).name
    for candidate in find_checkpoints(folder):
        if candidate.path.name == name and candidate.path.parent == folder:
            log.info("event=best_checkpoint_selected path=%s last=%s", candidate.path, last.path.name)
            return _complete(candidate)
    steps = "" if step_of(Path(name)) is None else "; save_total_limit, or something else, has removed it"
    raise NoCheckpoint(f"{folder} has no {name[:200]!r}, which {last.path.name}/{STATE} names as the best checkpoint{steps}")


def _complete(checkpoint: Checkpoint) -> Checkpoint:
    if checkpoint.incomplete:
        raise CheckpointError(f"{checkpoint.path} is incomplete: {checkpoint.incomplete}")
    return checkpoint


def _recorded_best(checkpoint: Checkpoint) -> str:
    found = training_state(checkpoint.path).get(_BEST)
    return found if isinstance(found, str) else ""


def _loads_best(folder: Path) -> bool:
    """Whether the job that has trained last loads the best checkpoint at its end."""
    writers = recorded_writers(folder) or []
    return bool(writers) and writers[-1].loads_best
