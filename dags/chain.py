"""What the DAGs share beside the steps of `operators.finetuning.Chain`: tasks that promote and register only if that is asked for."""

from __future__ import annotations

import os
from typing import Any

from airflow.sdk import task

from trainwright.operators import PromoteModelOperator, RegisterModelOperator
from trainwright.operators.finetuning import Chain

RETRIES = int(os.environ.get("TRAINWRIGHT_RETRIES", "0"))
"""Retries of every task, read when the DAG is parsed: they cannot be a parameter of a run."""


def every_task() -> dict[str, Any]:
    """What all tasks have in common."""
    return {"retries": RETRIES} if RETRIES else {}


def add_promotion(chain: Chain) -> None:
    """Create the task `promote` after the evaluation, and one before it, which skips it if `promote` is empty."""
    wanted = is_set.override(task_id="whether-to-promote")(chain.form["promote"])
    chain.add("promote-model", PromoteModelOperator, gate=wanted, task_id="promote")


def add_registration(chain: Chain) -> None:
    """Create the task `register` after the evaluation, and one before it, which skips it if `registry` is empty."""
    wanted = is_set.override(task_id="whether-to-register")(chain.form["registry"])
    chain.add("register-model", _register, gate=wanted, task_id="register")


def _register(*, conn_id: str = "", **given: Any) -> Any:
    return RegisterModelOperator(**given)  # the only step that needs no cluster


@task.short_circuit
def is_set(value: str) -> bool:
    """Whether a parameter is set; else the tasks after this one are skipped."""
    return bool(value)
