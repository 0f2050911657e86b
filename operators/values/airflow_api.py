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


__all__ = [
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "TaskDeferralError",
    "TaskDeferralTimeout",
    "TaskDeferred",
    "conf",
    "get_task_states",
]
