"""Folders with a marker file that the training code writes last. Suits training code of any kind.

The marker is `.complete` or `COMPLETE`: empty, or a JSON object such as `{"step": 100}`.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.formats.dcp import dcp_error, has_dcp_files
from trainwright.checkpoints.formats.deepspeed import deepspeed_error, has_deepspeed_files
from trainwright.checkpoints.formats.format import numbered_step, refusals_as_reasons
from trainwright.checkpoints.formats.hf_trainer import is_random_state
from trainwright.checkpoints.formats.whole_files import (
    INDEX,
    STATE,
    config_error,
    is_zip,
    torch_file_error,
    weights_error,
    weights_file_error,
)
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import folder_files, read_plain

MARKERS = (".complete", "COMPLETE")
UNFINISHED = "-unfinished"
_MAX_MARKER_BYTES = 64 * 1024
_TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
_TRAINING_STATE_STEMS = ("optimizer", "optim", "scheduler", "lr_scheduler", "scaler", "random_state", "rng_state")


class MarkedFormat:
    """A folder of any name with a marker. One with a `trainer_state.json` is left to the format of transformers' Trainer."""

    name = "marked"
    expects = "a folder with .complete or COMPLETE"

    def step_of(self, folder: Path) -> int | None:
        if not folder.is_dir() or _marker(folder) is None or (folder / STATE).exists():
            return None
        try:
            content = _content(folder)
        except UnsafeFile:  # refused, with the reason, when its completeness is checked
            content = None
        named, step = numbered_step(folder), (content or {}).get("step")
        if named is not None:
            return named
        return step if isinstance(step, int) and not isinstance(step, bool) and step >= 0 else 0

    def step_of_output(self, output: Path) -> int | None:
        return self.step_of(output)

    @refusals_as_reasons
    def incomplete_reason(self, folder: Path, step: int, world_size: int | None) -> str | None:
        marker = _marker(folder)
        if marker is None:
            return f"{' or '.join(MARKERS)} is missing"
        content = _content(folder)
        if content is None:
            return f'{marker} is neither empty nor a JSON object such as {{"step": {step}}}'
        if "step" in content and content["step"] != step:
            return f"{marker} is of step {content['step']!r}"
        return _known_files_error(folder, marker)

    def is_training_state(self, path: PurePosixPath) -> bool:
        stem = path.name.split(".", 1)[0].lower()
        is_named = is_random_state(path.name) or stem.startswith(_TRAINING_STATE_STEMS)
        return is_named or any(part.lower() in _TRAINING_STATE_STEMS for part in path.parts[:-1])


def unfinished_error(folder: Path) -> str | None:
    """Return the negative marker of NeMo that says that the folder is being written or deleted, or None. Raises OSError.

    It is `NAME-unfinished` beside the folder, or a file with that ending in it.
    """
    beside = folder.with_name(f"{folder.name}{UNFINISHED}")
    if beside.exists() or beside.is_symlink():
        return f"{beside.name} is beside it, so it is still being written"
    inside = sorted(path.name for path in folder.iterdir() if path.name.endswith(UNFINISHED)) if folder.is_dir() else []
    return f"{inside[0]} is in it, so it is still being written" if inside else None


def _marker(folder: Path) -> str | None:
    return next((name for name in MARKERS if (folder / name).exists() or (folder / name).is_symlink()), None)


def _content(folder: Path) -> dict[str, object] | None:
    """Return what the marker says, or None if it is invalid. Raises UnsafeFile, OSError."""
    marker = _marker(folder)
    if marker is None:
        return None
    try:
        content = read_plain(folder / marker, _MAX_MARKER_BYTES, folder)
        found = json.loads(content) if content.strip() else {}
    except (IsADirectoryError, ValueError, RecursionError):  # only JSON can name a step
        return None
    return found if isinstance(found, dict) else None


def _known_files_error(folder: Path, marker: str) -> str | None:
    """The marker is trusted; still, a file of a known type that is cut off, by a full disk for example, is found here."""
    files = [path for path in folder_files(folder).files if path.as_posix() != marker]
    if not files:
        return f"it has no files but {marker}"
    for path in files:
        if path.suffix == ".safetensors" and (error := weights_file_error(folder / path, folder)):
            return error
        if (
            path.suffix in _TORCH_SUFFIXES
            and is_zip(folder / path, folder)
            and (error := torch_file_error(folder / path, folder))
        ):
            return error
    problem = dcp_error(folder, folder) if has_dcp_files(folder) else None
    problem = problem or (deepspeed_error(folder, None) if has_deepspeed_files(folder) else None)
    return problem or (weights_error(folder) if (folder / INDEX).exists() else None) or config_error(folder)
