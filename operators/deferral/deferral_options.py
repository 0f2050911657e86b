"""The options of a deferred task, with their defaults, and the warning of a deferral that Airflow may take for a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.operators.values.rendered_values import parse_number

if TYPE_CHECKING:
    from trainwright.operators.groups import Deferral

LOG_POLL_INTERVAL_SECONDS = 60.0
MIN_DEFER_SECONDS = 10.0
"""An event fired sooner after the deferral can arrive before the executor's own report, and Airflow 3.3 then fails the task."""


def deferral_options(given: Deferral | None) -> tuple[float, float]:
    """Return the seconds between two polls of the log, and the minimum seconds between deferral and event. Raises ValueError."""
    given = given or {}
    return (
        parse_number("deferral.log_poll_interval", given.get("log_poll_interval", LOG_POLL_INTERVAL_SECONDS)),
        parse_number("deferral.min_defer_seconds", given.get("min_defer_seconds", MIN_DEFER_SECONDS)),
    )


def warn_of_short_deferral(log: Any, min_defer_seconds: float) -> None:
    """Log a warning if the trigger may fire too soon. Nobody reads what a DAG says while it is parsed, so the task says it."""
    if min_defer_seconds < MIN_DEFER_SECONDS:
        log.warning(
            "min_defer_seconds=%g: an event within %g s can arrive before the executor's report, and Airflow 3.3 then fails the task",
            min_defer_seconds,
            MIN_DEFER_SECONDS,
        )
