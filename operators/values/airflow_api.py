"""What the operators ask Airflow: names that its minor versions have in different places, and the state of a task.

The state tells whether a user has ended a task, or only its worker or triggerer is shutting down.

A trigger asks on the event loop, and where cancellations do not reach. A thread that asks by itself, or a request that is cancelled
half way, leaves an answer that nobody takes. The triggerers of Airflow 3.1 and 3.2 read it as the answer to the next request, and
end with all their triggers.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from trainwright.backoff import Backoff

if TYPE_CHECKING:
    from airflow.sdk import Context


try:  # Airflow 3.2
    from airflow.sdk import conf
    from airflow.sdk.exceptions import (
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
        TaskDeferralError,
        TaskDeferralTimeout,
        TaskDeferred,
    )
except ImportError:
    from airflow.configuration import conf  # type: ignore[assignment, no-redef, unused-ignore]
    from airflow.exceptions import (  # type: ignore[attr-defined, no-redef, unused-ignore]  # of Airflow 3.1
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
        TaskDeferralError,
        TaskDeferralTimeout,
        TaskDeferred,
    )

__all__ = [
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "TaskDeferralError",
    "TaskDeferralTimeout",
    "TaskDeferred",
    "conf",
]

log = logging.getLogger(__name__)
GOES_ON = frozenset({"scheduled", "queued", "running", "restarting", "deferred", "up_for_retry", "up_for_reschedule"})
"""States of a task that has not ended: what waits for its job then, or soon, is a try of it, in a worker or in a triggerer."""
ABSENT = "absent"
"""Its DAG run was deleted, or it is a task of another Airflow."""
ENDED_BY_USER = frozenset({"success", "failed", "skipped"})
"""States of a task that a user has marked, or whose DAG run was failed, by a user or its timeout."""
ENDED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
"""States of a task that has ended, by itself or by a user."""
_T = TypeVar("_T")
_ANSWER_SECONDS = 60.0
_attempts, _backoff = 5, Backoff(0.5, 4.0)
"""To read a state."""
_under_way: set[asyncio.Task[Any]] = set()
"""The event loop itself keeps only weak references."""


def get_task_states(**which: Any) -> dict[str, Any]:
    """The states of task instances: run ids to task ids to states. Raises AirflowRuntimeError, OSError.

    A task has this in its context; Airflow offers triggers no public name for it, and those of the standard provider use this one.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    return RuntimeTaskInstance.get_task_states(**which)


def answers_only_blocking_requests() -> bool:
    """Whether a trigger runs in the process of its task: `airflow tasks test`, `airflow dags test` and `dag.test()`.

    Their supervisor has no `asend`. Airflow takes the failure of an asynchronous request for a connection that does not exist.
    """
    from airflow.sdk.execution_time import task_runner

    comms = getattr(task_runner, "SUPERVISOR_COMMS", None)
    return comms is not None and not hasattr(comms, "asend")


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
            except StateUnknown as error:  # the same as no answer in time
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
        `state_of`. Raises StateUnknown.
        """
        from airflow.sdk.exceptions import AirflowRuntimeError

        try:
            states = get_task_states(dag_id=self.dag_id, task_ids=[self.task_id], run_ids=[self.run_id], map_index=self.map_index)
        except (AirflowRuntimeError, OSError) as error:
            raise StateUnknown(f"failed to read the state of the task {self.dag_id}/{self.task_id}: {error}") from error
        key = self.task_id if self.map_index < 0 else f"{self.task_id}_{self.map_index}"
        state = (states.get(self.run_id) or {}).get(key, ABSENT)
        return str(getattr(state, "value", state) or "")


def apart(work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    """Begin the work as a task that nothing cancels but the end of the event loop."""
    task = asyncio.get_running_loop().create_task(work)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    return task


async def undisturbed(work: Coroutine[Any, Any, _T]) -> _T:
    """Await the work, which goes on to its end even if whoever awaits it is cancelled."""
    return await asyncio.shield(apart(work))


async def state_of(task: TaskId) -> str:
    """The state of a task, see `TaskId.state`; asked again if that fails. Raises StateUnknown."""
    from asgiref.sync import sync_to_async  # its threads ask on the event loop, as the Task SDK expects; Airflow depends on it

    for attempt in range(1, _attempts + 1):
        try:
            return await asyncio.wait_for(undisturbed(sync_to_async(task.state)()), _ANSWER_SECONDS)
        except StateUnknown:  # asked again: a single failure may pass
            if attempt == _attempts:
                raise
            await asyncio.sleep(_backoff.pause(attempt))
        except TimeoutError:
            raise StateUnknown(f"Airflow did not answer within {_ANSWER_SECONDS:g} s") from None
    raise AssertionError
