"""The state of a task in Airflow, to tell whether a user has ended it or only its worker or triggerer is shutting down."""

from __future__ import annotations

import logging
import threading
from dataclasses import asdict, dataclass
from typing import Any

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskId:
    """Identifies a task instance, independent of its try."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: int = -1

    @classmethod
    def of(cls, context: Any) -> TaskId:
        ti = context["ti"]
        map_index = getattr(ti, "map_index", None)
        return cls(ti.dag_id, ti.task_id, str(ti.run_id), -1 if map_index is None else int(map_index))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def state_within(self, seconds: float) -> str:
        """As `state`, and empty if there is no answer in so many seconds: the task runner's client retries for much longer."""
        answers: list[str] = []
        asking = threading.Thread(target=lambda: answers.append(self.state()), name="task-state", daemon=True)
        asking.start()
        asking.join(seconds)
        if not answers:
            log.warning("no answer about the state of the task dag=%s task=%s seconds=%s", self.dag_id, self.task_id, seconds)
        return answers[0] if answers else ""

    def state(self) -> str:
        """The state of its current try in Airflow's spelling (`running`, `deferred`, `failed`, ...).

        Empty if there is none, or if the request fails.
        """
        from airflow.sdk.exceptions import AirflowRuntimeError
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        try:
            states = RuntimeTaskInstance.get_task_states(
                dag_id=self.dag_id, task_ids=[self.task_id], run_ids=[self.run_id], map_index=self.map_index
            )
        except (AirflowRuntimeError, OSError) as error:
            log.warning("failed to read the state of the task dag=%s task=%s error=%s", self.dag_id, self.task_id, error)
            return ""
        key = self.task_id if self.map_index < 0 else f"{self.task_id}_{self.map_index}"
        state = (states.get(self.run_id) or {}).get(key)
        return str(getattr(state, "value", state) or "")
