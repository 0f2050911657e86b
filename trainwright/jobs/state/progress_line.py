"""Progress as one line of text, for logs without a progress bar."""

from __future__ import annotations

import re

from trainwright.api.phase import Phase
from trainwright.jobs.state.progress import Progress
from trainwright.text.foreign_texts import printable

_SHOWN = ("loss", "eval_loss", "mean_token_accuracy", "epoch")
_LINE = re.compile(rf"({'|'.join(Phase)})( \d+ %( \(\d+ s left\))?)?( ({'|'.join(_SHOWN)})=\S+)*(: .*)?")


def progress_line(progress: Progress) -> str:
    """Return a line such as `Running 40 % (12 s left) loss=1.52`."""
    parts = [progress.phase.value]
    if progress.percent is not None:
        left = f" ({progress.remaining_seconds} s left)" if progress.remaining_seconds else ""
        parts.append(f"{progress.percent} %{left}")
    metrics = dict(progress.metrics)
    parts += [f"{name}={_short(metrics[name])}" for name in _SHOWN if name in metrics]
    line = " ".join(parts)
    return printable(f"{line}: {progress.note}" if progress.note else line).replace("\n", " ")


def is_progress_line(text: str) -> bool:
    """Return whether a line of a step's log is one of `progress_line`."""
    return _LINE.fullmatch(text) is not None


def _short(value: str) -> str:
    try:
        return f"{float(value):.4g}"
    except ValueError:
        return value
