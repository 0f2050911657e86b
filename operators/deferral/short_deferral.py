"""Warns of deferrals that Airflow may take for failures, in the log of the task: nobody reads what a DAG says while it is parsed."""

from __future__ import annotations

from typing import Any

MIN_DEFER_SECONDS = 10.0
"""An event fired sooner after the deferral can arrive before the executor's own report, and Airflow 3.3 then fails the task."""


def warn_of_short_deferral(log: Any, min_defer_seconds: float) -> None:
    """Log a warning if the trigger may fire too soon."""
    if min_defer_seconds < MIN_DEFER_SECONDS:
        log.warning(
            "min_defer_seconds=%g: an event within %g s can arrive before the executor's report, and Airflow 3.3 then fails the task",
            min_defer_seconds,
            MIN_DEFER_SECONDS,
        )
