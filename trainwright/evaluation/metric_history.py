"""The metrics of a training as they were reported while it was waited for, in the form of transformers' `log_history`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainwright.api.objects import Obj
from trainwright.checkpoints.history.metrics_file import REPORT, STEP, keep_metrics
from trainwright.evaluation.loss_curve import loss_curve_html
from trainwright.jobs.state.run_folder import folder_of_job
from trainwright.jobs.wait.job_events import JobEvents, Logged, MetricChanges

_MOST = 20_000
"""Entries that are kept; of more, every second one is dropped."""


class MetricHistory:
    """A callback for job events."""

    def __init__(self, folder: str = "") -> None:
        self.folder = folder
        """That of the training on its workspace, where the history is kept."""
        self.entries: list[dict[str, Any]] = []
        """The metrics of each report, and its `step`; at the end also what the reports have missed."""
        self._changes = MetricChanges()

    def begin(self, trainjob: Obj) -> None:
        """The history is that of this job from now on."""
        self.folder = folder_of_job(trainjob) or self.folder

    def __call__(self, events: JobEvents) -> None:
        if self._changes.is_counted and any(isinstance(event, Logged) for event in events):
            self.entries, self._changes = [], MetricChanges()  # the training's own history has steps, which these have not
        for step, metrics in self._changes.of(events):
            self.entries.append({**metrics, "step": step})
            if len(self.entries) > _MOST:
                del self.entries[1:-1:2]

    @property
    def count(self) -> str:
        """What the `step` of an entry counts: steps, or reports of a training that reports no step."""
        return REPORT if self._changes.is_counted else STEP

    def loss_curve(self) -> str:
        """Return the loss over steps as HTML, over reports if the training reports no step; a sentence if none was reported."""
        try:
            return loss_curve_html(self.entries, None, None, axis=REPORT if self.count == REPORT else "training step")
        except ValueError:
            return "<p>The training reported no loss.</p>"


@contextmanager
def kept_history(workspace_path: str, folder: str = "") -> Iterator[MetricHistory]:
    """Yield the history of a training, and write it to `metrics.jsonl` in its folder when the block has ended without error.

    `workspace_path` is where this process has mounted the workspace; if that is empty, or the folder, nothing is written. The folder
    is that of the job that the history has begun with, else `folder`.
    """
    history = MetricHistory(folder)
    yield history
    if workspace_path and history.folder:
        keep_metrics(Path(workspace_path), history.folder, history.entries, history.count)
