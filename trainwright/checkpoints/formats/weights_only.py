"""Which files of a checkpoint are exported without training state, and whether these contain the weights at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.formats.dcp import METADATA, read_dcp_metadata
from trainwright.checkpoints.formats.deepspeed import is_partition
from trainwright.checkpoints.formats.format import CheckpointFormat
from trainwright.checkpoints.formats.inert_pickle import BadPickle
from trainwright.checkpoints.formats.weights import is_weights

_OPTIMIZER_KEYS = ("optim", "opt", "optimizer", "optimizers", "optimizer_state", "optim_state", "optimizer_states")
_WITH_KNOWN_NAMES = ("hf-trainer", "torch-dcp", "deepspeed", "torchtune", "safetensors", "model")
"""Formats whose weights have known names. In others anything that is kept may be weights."""


def weights_only_files(checkpoint_format: CheckpointFormat, folder: Path, paths: Iterable[Path]) -> list[Path]:
    """Return the `paths`, relative to the checkpoint in `folder`, that are not training state.

    Raises CheckpointError if these contain no weights, as with ZeRO-3 without gathered weights, or if the weights cannot be
    separated from the optimizer states, as in a DCP folder with both; OSError.
    """
    kept = [path for path in paths if not checkpoint_format.is_training_state(PurePosixPath(path))]
    found = [path for path in kept if is_weights(PurePosixPath(path)) and not is_partition(PurePosixPath(path))]
    if not found and (checkpoint_format.name in _WITH_KNOWN_NAMES or not kept):
        raise CheckpointError(
            f"{folder}: without optimizer states there are no weights in this {checkpoint_format.name} checkpoint; with DeepSpeed "
            "ZeRO-3, set stage3_gather_16bit_weights_on_model_save, or export with the training state"
        )
    for path in kept:
        if path.name == METADATA and (key := _optimizer_key(folder / path, folder)):
            raise CheckpointError(
                f"{folder / path}: the files contain weights and optimizer states ({key}); save the model's state to a folder of "
                "its own, or export with the training state"
            )
    return kept


def _optimizer_key(metadata: Path, folder: Path) -> str:
    try:
        keys = read_dcp_metadata(metadata, folder).keys
    except BadPickle as error:
        raise CheckpointError(f"{metadata} is not accepted: {error}") from error
    return next((key for key in keys if key.split(".", 1)[0].lower() in _OPTIMIZER_KEYS), "")
