"""Sends the metrics of a task's training to its trackers: while the task waits in the worker, or when a deferred one has ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright import tracking
from trainwright.evaluation.loss_curve import MetricHistory, kept_history
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.wait.job_events import JobEvents
from trainwright.operators.values.allowed_places import check_places
from trainwright.operators.values.rendered_values import parse_texts
from trainwright.tracking import JobTracker, TrackingTarget


@dataclass(frozen=True)
class TrainingObserver:
    """Passes the events of a job on to its trackers, and to the history that is kept in the folder of the run."""

    tracker: JobTracker
    history: MetricHistory

    def begin(self, trainjob: dict[str, Any]) -> None:
        """Metrics are those of this job from now on, which may train in another folder than the first one of its step."""
        self.tracker.begin(trainjob["metadata"]["uid"])
        self.history.begin(trainjob)

    def __call__(self, events: JobEvents) -> None:
        self.tracker(events)
        self.history(events)


@dataclass(frozen=True)
class Trackers:
    """The parameter `tracking` of a task, rendered, and where its worker has mounted the workspace, if it has.

    They are read when they are used. Raises ValueError for trackers that are unknown, or have neither an address nor a folder.
    """

    given: list[Any] | str | None
    workspace_path: str

    def check(self, conn_ids: Iterable[str | None]) -> None:
        """Check the trackers before anything is submitted. Raises ValueError, PlaceNotAllowed.

        The worker writes to the workspace, and to the folders and servers that the trackers name; a project in W&B is not a place.
        """
        conn_ids = tuple(conn_ids)
        check_places(conn_ids, workspace_path=self.workspace_path)
        for target in self._targets():
            if target.tool != "wandb":
                check_places(conn_ids, tracking=target.address)

    @contextmanager
    def observer(self, identity: Identity, request: TrainRequest, write: Callable[[str], object]) -> Iterator[TrainingObserver]:
        """Yield an observer of the events of a training; the runs of the trackers end with the block.

        Metrics are kept in the folder of the run, too, if the worker mounts the workspace. Raises ValueError.
        """
        run, in_run = tracking.tracked_run(identity, request), identity.folder if request.workspace else ""
        with (
            tracking.tracking(run, self._targets(), folder=self._folder, write=write) as tracker,
            kept_history(self.workspace_path, in_run) as history,
        ):
            yield TrainingObserver(tracker, history)

    @property
    def _folder(self) -> Path | None:
        """The folder for trackers without a server."""
        return Path(self.workspace_path) / "tracking" if self.workspace_path else None

    def _targets(self) -> tuple[TrackingTarget, ...]:
        return tracking.parse_targets(parse_texts("tracking", self.given), os.environ, self._folder)
