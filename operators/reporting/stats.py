"""Counts TrainJobs and times their phases in Airflow's own metrics (StatsD, OpenTelemetry), where Airflow has them.

The names are fixed and have no tags: one series each, whatever the number of DAGs and runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any

PLACES = ("airflow.sdk.observability.stats", "airflow.observability.stats", "airflow.stats")
"""Where Airflow 3.2 and later, 3.1 and earlier versions have it."""
PREFIX = "trainwright.jobs"
PHASES = ("queue", "start", "run")


def count(what: str, places: Sequence[str] = PLACES) -> None:
    """Count one TrainJob: submitted, adopted, succeeded or failed."""
    if (stats := airflow_stats(places)) is not None:
        stats.incr(f"{PREFIX}.{what}")


def record_times(seconds: Mapping[str, float], places: Sequence[str] = PLACES) -> None:
    """Record how long a TrainJob was queued, starting and running: keys of PHASES, values in seconds."""
    if (stats := airflow_stats(places)) is not None:
        for phase in PHASES:
            if phase in seconds:
                stats.timing(f"{PREFIX}.{phase}_time", timedelta(seconds=seconds[phase]))


def airflow_stats(places: Sequence[str] = PLACES) -> Any:
    """Airflow's statistics; None in a version that has them elsewhere."""
    for place in places:
        try:
            module = import_module(place)
        except ImportError:
            continue
        if (found := getattr(module, "Stats", None)) is not None:
            return found
    return None
