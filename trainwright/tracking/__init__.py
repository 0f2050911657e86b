"""Sends the metrics of a training to MLflow, Weights & Biases and TensorBoard while it runs.

The waiting step feeds them from the progress that it follows anyway, so the training itself needs none of the tools. Each runs in an
environment of its own; what becomes of it does not touch the training.
"""

from trainwright.tracking.targets import TrackedRun, TrackingTarget, parse_targets, tracked_run
from trainwright.tracking.tracker import JobTracker, tracking

__all__ = ["JobTracker", "TrackedRun", "TrackingTarget", "parse_targets", "tracked_run", "tracking"]
