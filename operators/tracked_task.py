"""Sends the metrics of a task's training to its trackers: while the task waits in the worker, or when a deferred one has ended."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.operators.values.rendered_values import parse_texts
from trainwright.operators.values.task_identity import task_identity

if TYPE_CHECKING:
    from airflow.sdk import Context


@contextmanager
def tracked(
    task: Any, context: Context, trainjob: dict[str, Any] | None = None, metrics: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """Yield an observer of job events for the trackers of a TrainJobOperator; their runs end with the block.

    Metrics are kept in the folder of the run, too, if the worker mounts the workspace.
    `trainjob` is the job, if it is known, and `metrics` are values that are: the triggerer feeds no trackers, so of a deferred
    task these are the last ones, and what the training has logged comes at the end.
    Raises ValueError for trackers that are unknown, or have neither an address nor a folder.
    """
    from trainwright.evaluation.metric_history import kept_history
    from trainwright.jobs.wait.job_events import Metrics
    from trainwright.tracking import tracked_run, tracking

    targets, folder = tracking_targets(task)
    identity, request = task_identity(context, task._asked.run.run_id), task._asked.request
    with (
        tracking(tracked_run(identity, request), targets, folder=folder, write=lambda line: task.log.info("%s", line)) as tracker,
        kept_history(task.workspace_path, identity.folder if request.workspace else "") as history,
    ):
        observer = _Observer(tracker, history)
        if trainjob is not None:
            observer.begin(trainjob)
        if metrics:
            observer((Metrics(tuple(metrics.items())),))
        yield observer


class _Observer:
    """Passes the events of a job on to its trackers, and to the history that is kept in the folder of the run."""

    def __init__(self, tracker: Any, history: Any):
        self._tracker, self._history = tracker, history

    def begin(self, trainjob: dict[str, Any]) -> None:
        """Metrics are those of this job from now on, which may train in another folder than the first one of its step."""
        self._tracker.begin(trainjob["metadata"]["uid"])
        self._history.begin(trainjob)

    def __call__(self, events: Any) -> None:
        self._tracker(events)
        self._history(events)


def check_tracking(task: Any) -> None:
    """Check the trackers of a task before it submits anything. Raises ValueError as `tracked`, PlaceNotAllowed.

    The worker writes to the workspace, and to the folders and servers that the trackers name; W&B's projects are no places.
    """
    from trainwright.operators.values.allowed_places import check_places

    connections = (task.conn_id, task.store_conn_id, task._hub)
    check_places(connections, workspace_path=task.workspace_path)
    for target in tracking_targets(task)[0]:
        if target.tool != "wandb":
            check_places(connections, tracking=target.address)


def tracking_targets(task: Any) -> tuple[tuple[Any, ...], Path | None]:
    """The trackers of a task, and the folder for those without a server."""
    from trainwright.tracking import parse_targets

    folder = Path(task.workspace_path) / "tracking" if task.workspace_path else None
    return parse_targets(parse_texts("tracking", task.tracking), os.environ, folder), folder
