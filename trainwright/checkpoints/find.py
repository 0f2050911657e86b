"""Finds the checkpoints in a training output folder, distinguishes complete ones from those still being written, and selects one.

The best one is what transformers' Trainer has recorded in `trainer_state.json`. A Trainer that loads it at its end has trained that
model, whatever it has written later.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.formats import CheckpointFormat, OutputFormat, checkpoint_format, checkpoint_formats
from trainwright.checkpoints.formats.format import checkpoint_step, numbered_step
from trainwright.checkpoints.formats.hf_trainer import FORMAT
from trainwright.checkpoints.formats.marked import unfinished_error
from trainwright.checkpoints.formats.whole_files import STATE, training_state
from trainwright.checkpoints.job_record import recorded_writers, trained_world_size
from trainwright.checkpoints.training_start import is_restored
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.transfer import disk_errors

log = logging.getLogger(__name__)
_NAMED = 5
"""Incomplete checkpoints that an error names."""
Which = Literal["", "last", "best"]
"""Empty: the best one if the training loads it at its end (`--load_best_model_at_end`), else the last."""
_BEST = "best_model_checkpoint"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder. `incomplete` is the reason why it is incomplete, or empty.

    `format` is the name of its format. `world_size` is the number of ranks that wrote it, if it is recorded.
    """

    path: Path
    step: int
    incomplete: str = ""
    format: str = FORMAT
    world_size: int | None = None

    def incomplete_reason(self, folder: Path | None = None) -> str | None:
        """Check the checkpoint again, or its copy in `folder`. Raises OSError, CheckpointError for the format of a plugin."""
        folder = folder or self.path
        if reason := unfinished_error(folder):  # NeMo says so itself, whatever files there are
            return reason
        try:
            return checkpoint_format(self.format).incomplete_reason(folder, self.step, self.world_size)
        except UnsafeFile as error:  # a file that is not read cannot be complete
            return str(error)


def find_checkpoints(folder: Path, *, formats: Sequence[str] = (), use_record: bool = True) -> list[Checkpoint]:
    """Return all checkpoint folders directly below `folder`, by step, oldest first. A missing folder has none.

    If there are none, the folder itself counts if it is a checkpoint: a final model, or one of DCP or DeepSpeed. `formats` are
    the names of those to look for; all by default. With `use_record` the number of ranks that is recorded in the folder decides
    how many random states a checkpoint has to have. Raises StorageError if the folder cannot be read, CheckpointError for the
    format of a plugin that cannot be used.
    """
    with disk_errors(folder):
        if not folder.is_dir():
            return []
        known = [checkpoint_format(name) for name in formats] if formats else checkpoint_formats()
        found = [each for path in folder.iterdir() if (each := _checkpoint_in(path, known, use_record)) is not None]
        if not found and (whole := _output_checkpoint(folder, known, use_record)) is not None:
            found = [whole]
        return sorted(found, key=lambda each: (each.step, each.path))


def latest_checkpoint(folder: Path, *, formats: Sequence[str] = (), use_record: bool = True) -> Checkpoint:
    """Return the newest complete checkpoint below `folder`; the other parameters are those of `find_checkpoints`.

    Raises NoCheckpoint, which lists the incomplete checkpoints with reasons, StorageError, CheckpointError.
    """
    candidates = find_checkpoints(folder, formats=formats, use_record=use_record)
    for candidate in reversed(candidates):
        if not candidate.incomplete:
            return candidate
        log.info("checkpoint skipped path=%s format=%s reason=%s", candidate.path, candidate.format, candidate.incomplete)
    raise NoCheckpoint(f"no complete checkpoint in {folder}{_explanation(folder, candidates, formats)}")


def fingerprint(folder: Path) -> list[tuple[str, int, int]]:
    """Return names, sizes and times of all files; empty if the folder is removed meanwhile."""
    found, folders = [], [os.fspath(folder)]
    try:
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        shown = entry.stat()
                        found.append((entry.path[len(os.fspath(folder)) + 1 :], shown.st_size, shown.st_mtime_ns))
    except FileNotFoundError:
        return []
    return sorted(found)


def _checkpoint_in(path: Path, known: Sequence[CheckpointFormat], use_record: bool) -> Checkpoint | None:
    """A link is not a checkpoint: it may lead to a folder that nobody meant to export."""
    named = numbered_step(path)
    if path.is_symlink():  # it may lead anywhere
        if named is not None:
            log.warning("a link is not read as a checkpoint path=%s", path)
        return None
    if not path.is_dir() or path.name.startswith("."):  # hidden folders are drafts of this program and of others
        return None
    try:
        match = next(((each, step) for each in known if (step := each.step_of(path)) is not None), None)
    except FileNotFoundError:  # removed meanwhile
        return None
    except PermissionError:  # only what is named like a checkpoint matters
        if named is not None:
            raise
        log.warning("a folder that cannot be read is not looked at path=%s", path)
        return None
    return _checked(path, match, path.parent, use_record) if match else None


def _output_checkpoint(output: Path, known: Sequence[CheckpointFormat], use_record: bool) -> Checkpoint | None:
    for each in known:
        if isinstance(each, OutputFormat) and (step := each.step_of_output(output)) is not None:
            return _checked(output, (each, step), output, use_record)
    return None


def _checked(path: Path, match: tuple[CheckpointFormat, int], output: Path, use_record: bool) -> Checkpoint:
    checkpoint_format, step = match
    world_size = trained_world_size(output, path.name if path != output else "") if use_record else None
    found = Checkpoint(path, step, format=checkpoint_format.name, world_size=world_size)
    return Checkpoint(path, step, found.incomplete_reason() or "", checkpoint_format.name, world_size)


def _explanation(folder: Path, candidates: Sequence[Checkpoint], formats: Sequence[str]) -> str:
    """Say what each candidate misses, or, in a folder with anything else, what was looked for."""
    if candidates:
        reasons = [f"{each.path.name}: {each.incomplete}" for each in reversed(candidates)][:_NAMED]
        more = [f"{len(candidates) - _NAMED} more"] if len(candidates) > _NAMED else []
        read_as = ", ".join(dict.fromkeys(each.format for each in candidates))
        return f" ({'; '.join([*reasons, *more])}; read as {read_as})"
    with disk_errors(folder):
        # Nothing was written: what formats expect would not help.
        if not folder.is_dir() or all(path.name.startswith(".") for path in folder.iterdir()):
            return ""
    known = [checkpoint_format(name) for name in formats] if formats else checkpoint_formats()
    expected = [f"{each.name}: {text}" if (text := getattr(each, "expects", "")) else each.name for each in known]
    return f"; looked for {'; '.join(expected)}"


def select_checkpoint(folder: Path, step: int | None = None, which: Which = "") -> Checkpoint:
    """Return the complete checkpoint of `step` below `folder`, or without a step the last or the best one.

    Raises NoCheckpoint, CheckpointError (it is incomplete; training recorded no best one), StorageError.
    """
    if step is not None:
        if which:
            raise CheckpointError(f"step {step} and which={which!r} both select a checkpoint; give one of them")
        candidates = find_checkpoints(folder)
        for candidate in candidates:
            if candidate.step == step:
                return _complete(candidate)
        steps = ", ".join(str(candidate.step) for candidate in candidates) or "none"
        raise NoCheckpoint(f"{folder} has no checkpoint of step {step}; available steps: {steps}")
    last = latest_checkpoint(folder)
    if which == "last":  # asked for, whatever the training has loaded
        return last
    found = training_state(last.path).get(_BEST)
    recorded = found if isinstance(found, str) else ""
    if which == "best":
        return _best(folder, last, recorded)
    writers = recorded_writers(folder)
    # The last checkpoint is the trained model, unless the job that has trained last loads the best one at its end.
    if not recorded or not writers or not writers[-1].loads_best:
        return last
    try:
        return _best(folder, last, recorded)
    except NoCheckpoint as error:
        if not any(is_restored(folder, each.path.name) for each in find_checkpoints(folder)):
            raise
        # It is of the training whose export this one has resumed from. The Trainer does not find it either, and keeps the last.
        log.warning("event=best_checkpoint_missing exported=%s reason=%r", last.path.name, str(error))
        return last


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
    steps = "" if checkpoint_step(Path(name)) is None else "; save_total_limit, or something else, has removed it"
    raise NoCheckpoint(f"{folder} has no {name[:200]!r}, which {last.path.name}/{STATE} names as the best checkpoint{steps}")


def _complete(checkpoint: Checkpoint) -> Checkpoint:
    if checkpoint.incomplete:
        raise CheckpointError(f"{checkpoint.path} is incomplete: {checkpoint.incomplete}")
    return checkpoint
