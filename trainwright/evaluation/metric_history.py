"""The metrics of a training as they were reported while it was waited for, in the form of transformers' `log_history`."""

from __future__ import annotations

from typing import Any

from trainwright.evaluation.loss_curve import loss_curve_html
from trainwright.jobs.wait.job_events import JobEvents, Logged
from trainwright.jobs.wait.metric_changes import MetricChanges

_MOST = 20_000
"""Entries that are kept; of more, every second one is dropped."""


class MetricHistory:
    """A callback for job events."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        """The metrics of each report, and its `step`; at the end also what the reports have missed."""
        self._changes = MetricChanges()

    def __call__(self, events: JobEvents) -> None:
        if self._changes.is_counted and any(isinstance(event, Logged) for event in events):
            self.entries, self._changes = [], MetricChanges()  # the training's own history has steps, which these have not
        for step, metrics in self._changes.of(events):
            self.entries.append({**metrics, "step": step})
            if len(self.entries) > _MOST:
                del self.entries[1:-1:2]

    def loss_curve(self) -> str:
        """Return the loss over steps as HTML, over reports if the training reports no step; a sentence if none was reported."""
        try:
            return loss_curve_html(self.entries, None, None, axis="report" if self._changes.is_counted else "training step")
        except ValueError:
            return "<p>The training reported no loss.</p>"
