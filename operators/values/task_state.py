"""The state of a task in Airflow, to tell whether a user has ended it or only its worker or triggerer is shutting down."""

from __future__ import annotations

import logging
import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context


log = logging.getLogger(__name__)
GOES_ON = frozenset({"scheduled", "queued", "running", "restarting", "deferred", "up_for_retry", "up_for_reschedule"})
"""States of a task that has not ended: what waits for its job then, or soon, is a try of it, in a worker or in a triggerer."""

ABSENT = "absent"
"""Its DAG run was deleted, or it is a task of another Airflow."""
ENDED_BY_USER = frozenset({"success", "failed", "skipped"})
"""States of a task that a user has marked, or whose DAG run was failed, by a user or its timeout."""
ENDED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
"""States of a task that has ended, by itself or by a user."""


class StateUnknown(Exception):
    """Airflow did not say what became of a task."""


@dataclass(frozen=True)
class TaskId:
    """Identifies a task instance, independent of its try."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: int = -1

    @classmethod
    def of(cls, context: Context) -> TaskId:
        ti = context["ti"]
        map_index = getattr(ti, "map_index", None)
        return cls(ti.dag_id, ti.task_id, str(ti.run_id), -1 if map_index is None else int(map_index))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def state_within(self, seconds: float) -> str | None:
        """As `state`, and None if there is no answer in so many seconds: the task runner's client retries for much longer."""
        answers: list[str] = []

        def ask() -> None:
            try:
                answers.append(self.state())
            except StateUnknown as error:
                log.warning("%s", error)

        asking = threading.Thread(target=ask, name="task-state", daemon=True)
        asking.start()
        asking.join(seconds)
        if asking.is_alive():
            log.warning("no answer about the state of the task dag=%s task=%s seconds=%s", self.dag_id, self.task_id, seconds)
        return answers[0] if answers else None

    def state(self) -> str:
        """The state of its current try in Airflow's spelling (`running`, `deferred`, `failed`, ...).

        Empty if it has none, as after a clear; ABSENT if Airflow does not know the task. Blocks; a trigger uses
        `airflow_calls`. Raises StateUnknown.
        """
        from airflow.sdk.exceptions import AirflowRuntimeError

        from trainwright.operators.values.airflow_api import get_task_states

        try:
            states = get_task_states(dag_id=self.dag_id, task_ids=[self.task_id], run_ids=[self.run_id], map_index=self.map_index)
        except (AirflowRuntimeError, OSError) as error:
            raise StateUnknown(f"failed to read the state of the task {self.dag_id}/{self.task_id}: {error}") from error
        key = self.task_id if self.map_index < 0 else f"{self.task_id}_{self.map_index}"
        state = (states.get(self.run_id) or {}).get(key, ABSENT)
        return str(getattr(state, "value", state) or "")
