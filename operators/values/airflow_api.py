"""What the operators use of Airflow that its minor versions have in different places."""

from __future__ import annotations

from typing import Any

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


__all__ = [
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "TaskDeferralError",
    "TaskDeferralTimeout",
    "TaskDeferred",
    "answers_only_blocking_requests",
    "conf",
    "get_task_states",
]
