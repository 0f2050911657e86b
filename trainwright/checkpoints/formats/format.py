"""What a checkpoint format has to know: which folders are checkpoints, when one is complete, and which files only resuming needs.

A format reads names, sizes and small files. It imports no torch, loads no tensor, and executes nothing that a file contains.

Names of checkpoint folders that contain a step, such as `checkpoint-100`, `step_100` or `epoch_1`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Concatenate, ParamSpec, Protocol, TypeVar, runtime_checkable

from trainwright.storage.errors import UnsafeFile

_P = ParamSpec("_P")
_Self = TypeVar("_Self")
_Check = Callable[Concatenate[_Self, Path, _P], str | None]
_CHECKPOINT = re.compile(r"checkpoint-(0|[1-9][0-9]*)")
_NUMBERED = re.compile(r"(?:checkpoint|ckpt|global_step|step|epoch|iteration|iter)[-_]?([0-9]+)")


class CheckpointFormat(Protocol):
    """A way to write a checkpoint to a folder. `name` is recorded in manifests."""

    name: str

    def step_of(self, folder: Path) -> int | None:
        """Return the step if the folder may be a checkpoint of this format, complete or not, else None. Cheap. Raises OSError."""

    def incomplete_reason(self, folder: Path, step: int, world_size: int | None) -> str | None:
        """Return why the checkpoint of `step` in `folder` is incomplete, naming the file; None if it is complete.

        The folder may be a copy with another name. `world_size` is the number of ranks that wrote it, if known.
        Raises OSError if the folder cannot be read.
        """

    def is_training_state(self, path: PurePosixPath) -> bool:
        """Whether a file, relative to the checkpoint, only serves to resume: optimizer, scheduler, scaler, random states."""


@runtime_checkable
class OutputFormat(CheckpointFormat, Protocol):
    """A format whose checkpoint may be the whole training output folder, not only a folder in it."""

    def step_of_output(self, output: Path) -> int | None:
        """Return the step if the output folder itself may be a checkpoint of this format, else None. Raises OSError."""


def refusals_as_reasons(check: _Check[_Self, _P]) -> _Check[_Self, _P]:
    """Make a check return the reason for a file that is refused, such as a link out of the folder, or was just removed."""

    @functools.wraps(check)
    def checked(self: _Self, folder: Path, /, *args: _P.args, **kwargs: _P.kwargs) -> str | None:
        try:
            return check(self, folder, *args, **kwargs)
        except UnsafeFile as error:
            return str(error)
        except FileNotFoundError as error:  # rotation removes old checkpoints at any time
            return f"{Path(str(error.filename)).name} was removed"

    return checked


def checkpoint_step(folder: Path) -> int | None:
    """Return N of a folder named exactly `checkpoint-N` as by transformers' Trainer, or None."""
    match = _CHECKPOINT.fullmatch(folder.name)
    return int(match[1]) if match else None


def numbered_step(folder: Path) -> int | None:
    """Return N of a folder named `checkpoint-N`, `step-N`, `step_N`, `epoch_N`, `iter_N` or alike, or None."""
    match = _NUMBERED.fullmatch(folder.name)
    return int(match[1]) if match else None
