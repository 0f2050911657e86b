"""What the operators use of Airflow that its minor versions have in different places."""

from __future__ import annotations

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
    from airflow.exceptions import (  # type: ignore[attr-defined, no-redef, unused-ignore]
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
