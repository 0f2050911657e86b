"""The history of a training from the TensorBoard event files in its output folder, in the form of transformers' `log_history`."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainwright.checkpoints.history.event_file import BadEventFile, Scalar, scalars_in
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import folder_files, read_plain

_NAME = "events.out.tfevents."
_MAX_FILES, _MAX_BYTES = 256, 64 * 1024 * 1024
_TRAINING = re.compile(r"(?i:train|training)[/_](.+)")
_EVALUATION = re.compile(r"(?i:eval|evaluation|val|valid|validation|test)[/_](.+)")
_LOSS = re.compile(r"(?i:loss[/_])(?i:(train|training)|(val|valid|validation|eval))")
_EPOCH = re.compile(r"epoch_(\w+)")
log = logging.getLogger(__name__)


def event_history(output: Path) -> list[dict[str, Any]]:
    """Return the scalars of all event files below a folder, by step; none if there are none.

    Of several values for one tag and step, the one that was written last counts: a training that was restarted repeats some steps.
    A file that is corrupt is read up to there, and links and files above 64 MiB are passed over, with a warning. Raises OSError.
    """
    if not output.is_dir():
        return []
    newest: dict[tuple[str, int], Scalar] = {}
    paths = sorted(path for path in folder_files(output).files if path.name.startswith(_NAME))
    for path in paths[-_MAX_FILES:]:
        for scalar in _read(output, Path(path)):
            key = (metric_name(scalar.tag, path.parts[:-1]), scalar.step)
            known = newest.get(key)
            if known is None or scalar.wall_time >= known.wall_time:
                newest[key] = scalar
    return _by_step(newest)


def metric_name(tag: str, folders: Iterable[str] = ()) -> str:
    """Return the name of a tag as transformers logs it: `train/loss` is `loss`, `val_loss` is `eval_loss`; others are kept.

    Keras writes `epoch_loss` to the folders `train` and `validation`: `folders` are those of the file. Its `batch_loss` is kept, since
    it has other steps.
    """
    if (match := _LOSS.fullmatch(tag)) is not None:
        return "loss" if match[1] else "eval_loss"
    if (match := _TRAINING.fullmatch(tag)) is not None:
        return match[1]
    if (match := _EVALUATION.fullmatch(tag)) is not None:
        return f"eval_{match[1]}"
    name = match[1] if (match := _EPOCH.fullmatch(tag)) is not None else tag
    return f"eval_{name}" if "validation" in folders else name


def _read(output: Path, path: Path) -> list[Scalar]:
    found: list[Scalar] = []
    try:
        for scalar in scalars_in(read_plain(output / path, _MAX_BYTES, output)):
            found.append(scalar)  # those before a corrupt record are kept
    except (BadEventFile, UnsafeFile) as error:
        log.warning("event=event_file_not_read_whole path=%s scalars=%d error=%s", output / path, len(found), error)
    return found


def _by_step(scalars: dict[tuple[str, int], Scalar]) -> list[dict[str, Any]]:
    entries: dict[int, dict[str, Any]] = {}
    for (name, step), scalar in scalars.items():
        if step >= 0 and name != "step":
            entries.setdefault(step, {"step": step})[name] = scalar.value
    return [entries[step] for step in sorted(entries)]
