"""The history of a training that has written checkpoints, from wherever it was logged, in the form of transformers' `log_history`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from trainwright.checkpoints.formats.json_files import training_state
from trainwright.checkpoints.history.event_history import event_history
from trainwright.checkpoints.history.metrics_file import METRICS, STEP, read_metrics
from trainwright.workspace.layout import OUTPUT

HISTORY = "log_history"
"""Key of the state of transformers' Trainer, and of a manifest's metadata."""
_MOST = 500
_LOSSES = ("loss", "eval_loss")

LogHistory = list[dict[str, Any]]


class Logged(NamedTuple):
    """A history from one place, which is called `source`; `counted` is the key of what its entries count."""

    source: str
    counted: str
    entries: LogHistory

    @property
    def fullness(self) -> tuple[int, int]:
        """Of the histories of a training, the one counts that has the most losses, then the most entries."""
        return sum("loss" in entry for entry in self.entries), len(self.entries)


def logged_in(state: dict[str, Any]) -> LogHistory:
    """Return the history in a `trainer_state.json` or in a manifest's metadata; none if there is none."""
    history = state.get(HISTORY)
    return [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []


def history_beside(output: Path, checkpoint: Path) -> LogHistory:
    """Return the history of a training whose `checkpoint` has none itself; none if it has, or nothing was logged.

    That is the fullest of the metrics in the folder of the run, beside its `output`, and the event files in that. Raises OSError.
    """
    if logged_in(training_state(checkpoint)):
        return []
    beside = read_metrics(output.parent) if output.name == OUTPUT else []
    metrics = Logged(METRICS, STEP, [entry for entry in beside if STEP in entry])
    return max(metrics, Logged("event files", STEP, event_history(output)), key=lambda logged: logged.fullness).entries


def sampled(history: LogHistory) -> LogHistory:
    """Return the finite losses of a history, for a manifest: at most 500 entries, the first and the last among them."""
    found = []
    for entry in history:
        losses = {name: entry[name] for name in _LOSSES if name in entry and math.isfinite(entry[name])}
        if losses:
            found.append({STEP: int(entry[STEP]), **losses})
    if len(found) <= _MOST:
        return found
    return [found[round(number * (len(found) - 1) / (_MOST - 1))] for number in range(_MOST)]
