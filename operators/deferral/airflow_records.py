"""What the triggerer's own process reads in Airflow's database: the connections that name clusters, and what became of tasks.

Airflow has no public interface for that there. The models are those of Airflow 3.1 to 3.3; whoever reads them expects any error.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from trainwright.operators.values.airflow_api import ENDED
from trainwright.operators.values.connections import KUBERNETES, TRAINWRIGHT, ClusterSettings, settings_of

TRIGGER = "trainwright.operators.trigger.TrainJobTrigger"
_OF_ENVIRONMENT = "AIRFLOW_CONN_"
_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_ENDED_RUN = frozenset({"success", "failed"})
_WAITS_FOR_SCHEDULER = frozenset({"", "scheduled", "deferred", "up_for_retry", "up_for_reschedule"})
"""States of a task that only the scheduler can bring on, which leaves the tasks of an ended run alone. Airflow may leave a task in one
of them: what starts a task at the moment of the mark writes its state over it."""
_AT_ONCE = 200
_LONGEST_NAME = 250
"""Of a DAG, a task and a run in Airflow."""


@dataclass(frozen=True)
class Place:
    """Where tasks have jobs. Without a connection the cluster is found as everywhere else; an empty namespace is any."""

    conn_id: str | None
    mode: str = ""
    namespace: str = ""


@dataclass(frozen=True)
class AwaitingTask:
    """The task that waits for the job with this UID, and what becomes of the job if it ends. `id` is that of the task instance, which
    no other Airflow has, nor another try."""

    uid: str
    dag_id: str
    task_id: str
    run_id: str
    map_index: int
    on_cancel: str
    id: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for other texts than names: a note that the database refuses would end the search for all other jobs."""
        for name in (self.dag_id, self.task_id, self.run_id, self.on_cancel, self.id):
            if not isinstance(name, str) or len(name) > _LONGEST_NAME or not name.isprintable():
                raise ValueError(f"{name!r:.80} cannot be a name in Airflow")
        if not isinstance(self.map_index, int):
            raise ValueError(f"{self.map_index!r:.80} cannot be an index")

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.dag_id, self.run_id, self.task_id, self.map_index


def known_places() -> set[Place]:
    """The places that this process can know: of all connections to clusters, of the environment, and of the triggers that wait."""
    from airflow.models import Connection, Trigger
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        of_type = select(Connection.conn_id).where(Connection.conn_type.in_((TRAINWRIGHT, KUBERNETES)))
        found = {Place(str(conn_id)) for conn_id in session.scalars(of_type)}
        triggers = session.scalars(select(Trigger).where(Trigger.classpath == TRIGGER).limit(_AT_ONCE)).all()
        for given in (dict(trigger.kwargs) for trigger in triggers):
            found.add(Place(given.get("conn_id"), str(given.get("submission_mode") or ""), str(given.get("namespace") or "")))
    for name, value in os.environ.items():
        if name.startswith(_OF_ENVIRONMENT) and _type_of(value) in (TRAINWRIGHT, KUBERNETES):
            found.add(Place(name.removeprefix(_OF_ENVIRONMENT).lower()))
    if os.environ.get("KUBECONFIG") or os.path.exists(_SERVICE_ACCOUNT):
        found.add(Place(None))
    return found


@lru_cache(maxsize=1024)
def _type_of(value: str) -> str:
    """The type of a connection in an environment variable, as JSON or a URI; empty for what is neither."""
    from airflow.models import Connection

    try:
        connection = Connection.from_json(value) if value.lstrip().startswith("{") else Connection(uri=value)
    except Exception:  # of whatever parses it; a task that uses it will say so
        return ""
    return str(connection.conn_type or "")


def settings_of_connection(conn_id: str | None) -> ClusterSettings:
    """The settings of a connection. Raises AirflowNotFoundException, ValueError."""
    if not conn_id:  # without a connection the cluster is found as everywhere else
        return ClusterSettings()
    from airflow.models import Connection

    connection = Connection.get_connection_from_secrets(conn_id)
    return settings_of(str(connection.conn_type or ""), dict(connection.extra_dejson or {}), conn_id)


def ended_tasks(tasks: Sequence[AwaitingTask]) -> dict[str, str]:
    """What became of the tasks that have ended: the UIDs of their jobs, and the states of the tasks.

    A task that this Airflow does not know, or knows by another id, has not ended here: another Airflow may wait. One that waits for
    the scheduler has ended if its DAG run has.
    """
    from airflow.models import TaskInstance
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstancehistory import TaskInstanceHistory
    from airflow.utils.session import create_session
    from sqlalchemy import and_, select

    found: dict[str, str] = {}
    with create_session() as session:
        for batch in (tasks[at : at + _AT_ONCE] for at in range(0, len(tasks), _AT_ONCE)):
            key = (TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.map_index)
            columns = (*key, TaskInstance.id, TaskInstance.state, DagRun.state)
            of_run = and_(DagRun.dag_id == TaskInstance.dag_id, DagRun.run_id == TaskInstance.run_id)
            current = {
                tuple(row[:4]): (str(row[4]), _text(row[5]), _text(row[6]))
                for row in session.execute(select(*columns).join(DagRun, of_run).where(*_among(TaskInstance, batch)))
            }
            retried = select(TaskInstanceHistory.task_instance_id).where(*_among(TaskInstanceHistory, batch))
            earlier: set[str] | None = None
            for task in batch:
                now, state, run_state = current.get(task.key, ("", "", ""))
                # It is unknown to this Airflow, or a try of it goes on.
                if not now or not (state in ENDED or (run_state in _ENDED_RUN and state in _WAITS_FOR_SCHEDULER)):
                    continue
                if _same(now, task.id):  # the note is of the current try
                    found[task.uid] = state
                    continue
                if earlier is None:
                    earlier = {str(each) for each in session.scalars(retried)}
                if any(_same(each, task.id) for each in earlier):
                    found[task.uid] = state
    return found


def _among(model: Any, tasks: Sequence[AwaitingTask]) -> tuple[Any, ...]:
    """Conditions that hold for rows of these tasks, and few others."""
    return tuple(
        column.in_({getattr(task, name) for task in tasks})
        for name, column in (("dag_id", model.dag_id), ("run_id", model.run_id), ("task_id", model.task_id))
    )


def _same(one: str, other: str) -> bool:
    """Whether two ids are the same; some databases write them without dashes."""
    return bool(other) and one.replace("-", "").lower() == other.replace("-", "").lower()


def _text(state: Any) -> str:
    return str(getattr(state, "value", state) or "")
