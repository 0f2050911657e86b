"""The tasks that the DAGs share: prepare dataset and model, train in a TrainJob, export the checkpoint, evaluate and promote."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from airflow.sdk import task

from trainwright.operators import PromoteModelOperator, RegisterModelOperator
from trainwright.operators.finetuning import Chain, Results, connections, of_run, training_chain

__all__ = [
    "Chain",
    "Results",
    "connections",
    "every_task",
    "is_set",
    "of_run",
    "promotion",
    "registration",
    "training_chain",
]
RETRIES = int(os.environ.get("TRAINWRIGHT_RETRIES", "0"))
"""Retries of every task, read when the DAG is parsed: they cannot be a parameter of a run."""
RESULTS = Results()


def every_task() -> dict[str, Any]:
    """What all tasks have in common."""
    return {"retries": RETRIES} if RETRIES else {}


def promotion(form: Mapping[str, str]) -> Any:
    """Create the task `promote` in the current DAG, and return the one before it, which skips it if `promote` is empty."""
    promote = PromoteModelOperator(
        task_id="promote",
        export_uri=form["export_uri"],
        checkpoint_uri=RESULTS.of("export-checkpoint", "uri"),
        checkpoint_digest=RESULTS.of("export-checkpoint", "digest"),
        evaluation=RESULTS.of("evaluate", "evaluation"),
        rule=form["promote"],
        **of_run(form, every_task(), RESULTS),
    )
    wanted = is_set.override(task_id="whether-to-promote")(form["promote"])
    wanted >> promote
    return wanted


def registration(form: Mapping[str, str], **given: Any) -> Any:
    """Create the task `register` in the current DAG, and return the one before it, which skips it if `registry` is empty."""
    register = RegisterModelOperator(
        task_id="register",
        checkpoint_uri=RESULTS.of("export-checkpoint", "uri"),
        checkpoint_digest=RESULTS.of("export-checkpoint", "digest"),
        registry=form["registry"],
        run=RESULTS.run(),
        store_conn_id=form["store_conn_id"],
        hub_conn_id=RESULTS.of_run("hub_conn_id"),
        **given,
        **every_task(),
    )
    wanted = is_set.override(task_id="whether-to-register")(form["registry"])
    wanted >> register
    return wanted


@task.short_circuit
def is_set(value: str) -> bool:
    """Whether a parameter is set; else the tasks after this one are skipped."""
    return bool(value)
