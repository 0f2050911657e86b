"""The metrics of a training as they were reported while it was waited for, in the form of transformers' `log_history`."""

from __future__ import annotations

from typing import Any

from trainwright.evaluation.loss_curve import loss_curve_html
from trainwright.jobs.wait.job_events import JobEvents
from trainwright.jobs.wait.metric_changes import MetricChanges

_MOST = 20_000
"""Entries that are kept; of more, every second one is dropped."""


class MetricHistory:
    """A callback for job events."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        """The changed metrics of each report, and its `step`."""
        self._changes = MetricChanges()

    def __call__(self, events: JobEvents) -> None:
        for step, metrics in self._changes.of(events):
            self.entries.append({**metrics, "step": step})
            if len(self.entries) > _MOST:
                del self.entries[1:-1:2]

    def loss_curve(self) -> str:
        """Return the loss over steps as HTML; a sentence if none was reported."""
        try:
            return loss_curve_html(self.entries, None, None)
        except ValueError:
            return "<p>The training reported no loss.</p>"
