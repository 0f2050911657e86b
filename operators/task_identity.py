"""Which step of which run an Airflow task is: the same for every retry, another once a user has cleared the task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from trainwright.jobs import Identity
from trainwright.operators.task_state import TaskId


def task_identity(context: Any, run: str = "") -> Identity:
    """The identity of the task that runs with this context; `run` stands in for the DAG run's id where it is given.

    A clear raises `max_tries` above the task's own retries, a retry does not: so a clear starts a new TrainJob and a
    retry finds the one of the try before.
    """
    ti = context["ti"]
    retries = int(getattr(context.get("task"), "retries", 0) or 0)
    most = int(getattr(ti, "max_tries", retries) or 0)
    step = ti.task_id if most in (0, retries) else f"{ti.task_id}@{most}"
    return Identity(f"airflow/{ti.dag_id}", str(run or ti.run_id), step, TaskId.of(context).map_index)


def earlier_identities(identity: Identity) -> Iterator[Identity]:
    """Those that the task had before it was cleared, as far as they can have been: none for a task that never was."""
    task, cleared, most = identity.step.rpartition("@")
    if cleared:
        yield replace(identity, step=task)
        yield from (replace(identity, step=f"{task}@{number}") for number in range(1, int(most)))
