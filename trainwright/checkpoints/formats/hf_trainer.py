"""`checkpoint-N` folders of transformers' Trainer, with one rank or many, with DeepSpeed or FSDP.

The Trainer writes weights, then optimizer and random states, and `trainer_state.json` last, but not atomically and without waiting
for other ranks. So the existence of the folder does not mean that it is complete: any rank's random states may be missing.

accelerate writes FSDP's states. Sharded: the DCP folders `pytorch_model_fsdp_K` and `optimizer_K`. Full: `pytorch_model_fsdp.bin`
and `optimizer.bin` by the first rank. Local, or without DCP: `..._rankR.bin` by every rank. K numbers several models; 0 is left out
of the names of full states.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.formats.dcp import dcp_error, dcp_ranks
from trainwright.checkpoints.formats.deepspeed import (
    LATEST,
    deepspeed_error,
    deepspeed_states,
    has_deepspeed_files,
    is_state_folder,
)
from trainwright.checkpoints.formats.format import checkpoint_step, refusals_as_reasons
from trainwright.checkpoints.formats.whole_files import (
    adapter_folders,
    adapters_error,
    config_error,
    has_weights,
    state_error,
    torch_file_error,
    training_state,
    weights_error,
)

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
_FOLDER = re.compile(r"(pytorch_model_fsdp|optimizer)_([0-9]+)")
_FILE = re.compile(r"(pytorch_model_fsdp|optimizer)(?:_([0-9]+))?(?:_rank([0-9]+))?\.bin")
MODEL, OPTIMIZER = "pytorch_model_fsdp", "optimizer"
_SINGLE = "rng_state.pth"
_RANK = re.compile(r"rng_state_([0-9]+)\.pth")


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
        return (
            first in _STATE_NAMES
            or is_random_state(first)
            or _OPTIMIZER_FILE.fullmatch(first) is not None
            or _XLA_OPTIMIZER.fullmatch(first) is not None
        )


FORMAT = HfTrainerFormat.name


def incomplete_reason(folder: Path, step: int | None = None, world_size: int | None = None) -> str | None:
    """Return why the checkpoint is incomplete, or None. `step` defaults to the one in the folder's name. Raises OSError."""
    step = checkpoint_step(folder) if step is None else step
    if step is None:
        return f"{folder.name} is not named checkpoint-N"
    return HfTrainerFormat().incomplete_reason(folder, step, world_size)


def has_reached_end(folder: Path) -> bool | None:
    """Whether the training of a checkpoint had no step left, by its state; None without a state, as where it was just moved away."""
    state = training_state(folder)
    if not state:  # it may just have been moved away
        return None
    step, steps = state.get("global_step"), state.get("max_steps")
    return isinstance(step, int) and isinstance(steps, int) and 0 < steps <= step


def _weights_error(folder: Path) -> str | None:
    """Weights are missing only where another part has them: FSDP's sharded model, or ZeRO-3 without gathering."""
    error = weights_error(folder)
    if error is None or has_weights(folder):
        return error
    if adapter_folders(folder):
        return None  # checked on their own
    fsdp = FsdpFiles(folder)
    if fsdp.has(MODEL) and not fsdp.has_full_model:  # the weights are in the sharded model
        return None
    if has_deepspeed_files(folder):
        if problem := deepspeed_error(folder, None):
            return problem
        states = deepspeed_states(folder)
        parallelism = states.parallelism() if states else None
        # The weights are in the states of ZeRO-3.
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
    if not (has_deepspeed or has_optimizer or has_random_state or SCHEDULER in names):  # saved with `save_only_model`
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


class FsdpFiles:
    """The FSDP states in a checkpoint folder. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found = sorted(folder.iterdir())
        self.folders = [path for path in found if _FOLDER.fullmatch(path.name) and path.is_dir() and not path.is_symlink()]
        self.files = [path for path in found if _FILE.fullmatch(path.name)]

    def has(self, kind: str) -> bool:
        """Whether there is a state of the MODEL or the OPTIMIZER."""
        return bool(self._numbers(kind))

    @property
    def has_full_model(self) -> bool:
        """Whether the first rank has gathered the model; the Trainer then writes it as safetensors too."""
        return any((match := _FILE.fullmatch(path.name)) and match[1] == MODEL and match[3] is None for path in self.files)

    @property
    def ranks(self) -> int:
        """The least number of ranks that can have written these files. Raises UnsafeFile, OSError."""
        files = [int(match[3]) + 1 for path in self.files if (match := _FILE.fullmatch(path.name)) and match[3]]
        return max([*files, *(dcp_ranks(path, self.folder) for path in self.folders)], default=0)

    def error(self, world_size: int | None) -> str | None:
        """Return which file is missing or incomplete, or None. Raises UnsafeFile, OSError."""
        for path in self.folders:
            if error := dcp_error(path, self.folder):
                return error
        for path in self.files:
            if error := torch_file_error(path, self.folder):
                return error
        return self._missing_rank(world_size) or self._missing_optimizer()

    def _missing_rank(self, world_size: int | None) -> str | None:
        ranks: dict[str, set[int]] = {}
        for path in self.files:
            if (match := _FILE.fullmatch(path.name)) and match[3] is not None:
                ranks.setdefault(path.name[: match.start(3)], set()).add(int(match[3]))
        expected = max([world_size or 0, *(max(found) + 1 for found in ranks.values())])
        for stem, found in sorted(ranks.items()):
            missing = next((rank for rank in range(expected) if rank not in found), None)
            if missing is not None:
                return f"{stem}{missing}.bin is missing"
        return None

    def _missing_optimizer(self) -> str | None:
        """accelerate writes the state of every model with that of its optimizer."""
        models, optimizers = self._numbers(MODEL), self._numbers(OPTIMIZER)
        for kind, lost in ((OPTIMIZER, models - optimizers), (MODEL, optimizers - models)):
            if lost:
                return f"{self._name(kind, min(lost))} is missing"
        return None

    def _name(self, kind: str, number: int) -> str:
        """Return the name of a state as this checkpoint's kind has it: a folder, or a file of the first rank."""
        return f"{kind}_{number}" if self.folders else f"{kind}_{number}.bin" if number else f"{kind}.bin"

    def _numbers(self, kind: str) -> set[int]:
        matches = [_FOLDER.fullmatch(path.name) for path in self.folders] + [_FILE.fullmatch(path.name) for path in self.files]
        return {int(match[2] or 0) for match in matches if match and match[1] == kind}


def is_random_state(name: str) -> bool:
    """Whether a file name is that of a random state."""
    return name == _SINGLE or _RANK.fullmatch(name) is not None


def missing_random_state(folder: Path, world_size: int | None, least_ranks: int = 0) -> str | None:
    """Return which rank's random state is missing, or None. Raises OSError.

    `world_size` is the number of ranks that trained, if known; `least_ranks` is known from other files of the checkpoint.
    Only a single rank writes `rng_state.pth`, whatever is recorded, and so a numbered file is never the only one.
    """
    names = {path.name for path in folder.iterdir()}
    ranks = {int(match[1]) for name in names if (match := _RANK.fullmatch(name))}
    is_single = _SINGLE in names and not ranks
    required = least_ranks if is_single else max(world_size or 0, least_ranks)
    if not ranks and required < 2:  # a single rank
        return None if is_single else f"{_SINGLE} is missing"
    expected = max(required, len(ranks), 1 if _SINGLE in names else 2)
    missing = next((rank for rank in range(expected) if rank not in ranks), None)
    if missing is None:
        return None
    trained = f": {required} ranks trained" if required > max(ranks, default=-1) + 1 else ""
    return f"rng_state_{missing}.pth is missing{trained}"
