"""The run and step that an Airflow task belongs to: the same for every retry, a new one after a clear."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from trainwright.jobs import Identity
from trainwright.operators.values.task_state import TaskId


def task_identity(context: Any, run: str = "") -> Identity:
    """The identity of the task with this context. `run` overrides the DAG run's id.

    A clear raises `max_tries` above the task's own retries, a retry does not. So a clear starts a new TrainJob, and a retry
    finds the existing one.
    """
    ti = context["ti"]
    retries = int(getattr(context.get("task"), "retries", 0) or 0)
    most = int(getattr(ti, "max_tries", retries) or 0)
    step = ti.task_id if most in (0, retries) else f"{ti.task_id}@{most}"
    return Identity(f"airflow/{ti.dag_id}", str(run or ti.run_id), step, TaskId.of(context).map_index)


def earlier_identities(identity: Identity) -> Iterator[Identity]:
    """All identities that the task may have had before it was cleared; none for a task that was not cleared."""
    task, cleared, most = identity.step.rpartition("@")
    if cleared:
        yield replace(identity, step=task)
        yield from (replace(identity, step=f"{task}@{number}") for number in range(1, int(most)))
