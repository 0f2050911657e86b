"""Checkpoints of DeepSpeed's own `save_checkpoint`: a folder `global_stepN` (or another tag), and `latest`, which names it."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.formats.deepspeed_states import DeepSpeedStates
from trainwright.checkpoints.formats.folder_names import numbered_step
from trainwright.checkpoints.formats.format import refusals_as_reasons
from trainwright.checkpoints.formats.json_files import STATE, recorded_step
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain

LATEST = "latest"
_MAX_TAG_BYTES = 1024
_GLOBAL_STEP = re.compile(r"global_step([0-9]+)")
_TRAINER_FILES = (STATE, "training_args.bin", "config.json", "adapter_config.json", "scheduler.pt")
"""transformers' Trainer writes some of these before DeepSpeed writes its states."""


class DeepSpeedFormat:
    """`latest` and `global_stepN` in a numbered folder or in the output folder itself."""

    name = "deepspeed"
    expects = "global_stepN and latest"

    def step_of(self, folder: Path) -> int | None:
        step = numbered_step(folder)
        return step if step is not None and has_deepspeed_files(folder) and not _is_of_trainer(folder) else None

    def step_of_output(self, output: Path) -> int | None:
        if not has_deepspeed_files(output):
            return None
        try:
            match = _GLOBAL_STEP.fullmatch(read_tag(output) or "")
        except UnsafeFile:
            return 0  # refused, with the reason, when its completeness is checked
        return int(match[1]) if match else recorded_step(output)

    @refusals_as_reasons
    def incomplete_reason(self, folder: Path, step: int, world_size: int | None) -> str | None:
        return deepspeed_error(folder, world_size)

    def is_training_state(self, path: PurePosixPath) -> bool:
        """The partitioned model states of ZeRO-3 have no weights: these are in the optimizer's parts."""
        return path.name == LATEST or "optim_states" in path.name or "offloaded_tensors" in path.parts or is_partition(path)


def is_partition(path: PurePosixPath) -> bool:
    """Whether a file is a rank's part of partitioned model states (ZeRO-3), which contain no weights."""
    return path.name.startswith("zero_pp_rank_") and path.name.endswith("_model_states.pt")


def is_state_folder(name: str) -> bool:
    """Whether a folder name is that of DeepSpeed's states of one step."""
    return _GLOBAL_STEP.fullmatch(name) is not None


def has_deepspeed_files(folder: Path) -> bool:
    """Whether a folder has states of DeepSpeed, complete or not. Raises OSError."""
    if not folder.is_dir():
        return False
    return any(is_state_folder(path.name) and path.is_dir() for path in folder.iterdir()) or (
        (folder / LATEST).is_file() and not (folder / LATEST).is_symlink() and _names_folder(folder)
    )


def deepspeed_states(folder: Path) -> DeepSpeedStates | None:
    """Return the states that `latest` names, or None if it is missing or names none. Raises UnsafeFile, OSError."""
    tag = read_tag(folder)
    return DeepSpeedStates(folder / tag, folder) if tag else None


def deepspeed_error(folder: Path, world_size: int | None) -> str | None:
    """Return why the states that `latest` names are incomplete, naming the file, or None. Raises UnsafeFile, OSError."""
    tag = read_tag(folder)
    if tag is None:
        return f"{LATEST} is missing"
    if not tag or PurePosixPath(tag).name != tag or tag == "..":
        return f"{LATEST} does not name a folder"
    if not (folder / tag).is_dir() or (folder / tag).is_symlink():
        return f"{LATEST} names {tag!r}, which is not a folder in it"
    return DeepSpeedStates(folder / tag, folder).error(world_size)


def read_tag(folder: Path) -> str | None:
    """Return the contents of `latest`, or None without one; an empty text if it is no text. Raises UnsafeFile, OSError."""
    try:
        return read_plain(folder / LATEST, _MAX_TAG_BYTES, folder).decode().strip()
    except (FileNotFoundError, IsADirectoryError):
        return None
    except UnicodeDecodeError:
        return ""


def _names_folder(folder: Path) -> bool:
    try:
        tag = read_tag(folder)
    except UnsafeFile:
        return False
    return bool(tag) and PurePosixPath(tag or "").name == tag and (folder / (tag or "")).is_dir()


def _is_of_trainer(folder: Path) -> bool:
    return any((folder / name).exists() for name in _TRAINER_FILES)
