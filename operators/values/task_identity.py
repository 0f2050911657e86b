"""The run and step that an Airflow task belongs to, and which of its executions this is: a retry, or a new one after a clear.

All executions of a task have one identity. Airflow's `run_id` is unique for each DAG only, so the run that is named by default has
the DAG's name too.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainwright.api import names
from trainwright.jobs import Identity
from trainwright.jobs.state.identity import Submitter
from trainwright.jobs.state.run_folder import label_value
from trainwright.operators.values.airflow_api import TaskId

if TYPE_CHECKING:
    from airflow.sdk import Context


_STARTED = secrets.token_hex(8)


def this_process() -> str:
    """What tells the process of a task from others, also from those that are forked from one."""
    return f"{_STARTED}-{os.getpid()}"


def default_run(ti: Any) -> str:
    """The run of a task whose `run_id` is not set: the DAG and its run, which no other DAG has."""
    return f"{ti.dag_id}/{ti.run_id}"


def task_identity(context: Context, run: str = "", *, on_cancel: str = "keep") -> Identity:
    """The identity of the task with this context. `run` overrides the default run.

    `on_cancel` is what becomes of its job if a user ends the task while nobody looks; a job that is kept notes no task.
    """
    ti = context["ti"]
    default, map_index = default_run(ti), TaskId.of(context).map_index
    is_named = run not in ("", default)
    is_of_default = not is_named or run.startswith(f"{default}/")
    submitter = _submitter(context, map_index, adopts_reruns=not is_of_default)
    if on_cancel != "keep":
        awaiting = {**TaskId.of(context).as_dict(), "on_cancel": on_cancel, "id": submitter.task_instance}
        submitter = replace(submitter, awaited_by=json.dumps(awaiting))
    own = Identity(f"airflow/{ti.dag_id}", str(run or default), ti.task_id, map_index, submitter=submitter)
    return own if is_named else own.at(ti.task_id)


def run_of_group(context: Context) -> str:
    """The default run of the tasks in the task group of this one: two groups of a DAG run that train are two runs."""
    ti = context["ti"]
    group, _, _ = ti.task_id.rpartition(".")
    return f"{default_run(ti)}/{group}" if group else default_run(ti)


def run_labels(context: Context) -> dict[str, str]:
    """The labels of all jobs of the DAG run with this context, whatever run their tasks have named."""
    ti = context["ti"]
    return {names.DAG_LABEL: label_value(ti.dag_id), names.AIRFLOW_RUN_LABEL: label_value(str(ti.run_id))}


def _submitter(context: Context, map_index: int, *, adopts_reruns: bool) -> Submitter:
    """What the job tells about the task. A run that was deleted and triggered again has begun at another time.

    `max_tries` of a task instance changes only when it is cleared: neither by a retry, nor when the DAG's `retries` are edited.
    """
    ti, dag_run = context["ti"], context.get("dag_run")
    began, most = getattr(dag_run, "start_date", None), getattr(ti, "max_tries", None)
    labels = {
        names.DAG_LABEL: ti.dag_id,
        names.TASK_LABEL: ti.task_id,
        names.AIRFLOW_RUN_LABEL: str(ti.run_id),
        names.MAP_INDEX_LABEL: str(map_index) if map_index >= 0 else "",
        names.TRY_NUMBER_LABEL: str(getattr(ti, "try_number", "")),
    }
    return Submitter(
        began.isoformat() if began is not None else "",
        str(most) if most is not None else "",
        pipeline=ti.dag_id,
        task_instance=str(getattr(ti, "id", "") or ""),
        waiter=this_process(),
        labels=labels,
        adopts_reruns=adopts_reruns,
    )
