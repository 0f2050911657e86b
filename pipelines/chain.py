"""The steps that the pipelines share, created from the tables of `trainwright.steps.chain`, and what is set on their tasks.

The first step checks the settings of all others and sorts them; the others get theirs as its output `run`. On tasks are set the
claim, credentials, and no caching.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from kfp import dsl, kubernetes

from trainwright.components import start_run
from trainwright.jobs.credentials.store_variables import all_store_variables
from trainwright.jobs.request.setting import names_of
from trainwright.steps.chain import FINETUNING, START, Table, inputs_of
from trainwright.steps.requests import StartRun

MOUNT = "/workspace"
"""Where the steps mount the workspace's claim."""
PARALLELISM = int(os.environ.get("TRAINWRIGHT_PARALLELISM", "2"))
"""Trials of a sweep at once. Set when a pipeline is compiled: it cannot be a parameter of a run."""
_STORE = {name: name for name in all_store_variables()}
_HUB = {"HF_TOKEN": "HF_TOKEN"}
_TRACKING = {
    name: name
    for name in (
        "MLFLOW_TRACKING_URI",
        "MLFLOW_TRACKING_TOKEN",
        "MLFLOW_TRACKING_USERNAME",
        "MLFLOW_TRACKING_PASSWORD",
        "MLFLOW_EXPERIMENT_NAME",
        "WANDB_API_KEY",
        "WANDB_BASE_URL",
        "WANDB_ENTITY",
        "WANDB_PROJECT",
    )
}


class Chain:
    """The tasks of a pipeline, by the names of their steps in a table. Creating it adds the first one, with `given`."""

    def __init__(self, form: Mapping[str, Any], table: Table = FINETUNING, **given: Any):
        self._form, self._table = form, table
        fields = {name: form[name] for name in sorted(names_of(StartRun)) if name in form}
        self.start = start_run(pipeline_run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER, **fields, **given)
        self._tasks = {START: self.start}

    def add(self, component: Any, step: str = "", **given: Any) -> Any:
        """Add the task of a step, which is named as its component unless `step` is set. `given` replaces inputs of the table."""
        row = self._table[step or component.name]
        inputs = inputs_of(row.of_pipeline, self._form, lambda earlier, output: self._tasks[earlier].outputs[output])
        task = component(run=self.start.outputs["run"], **{**inputs, **given})
        self._tasks[step or component.name] = task
        return task.after(self._tasks[row.after]) if row.after else task


def set_up(tasks: Iterable[Any]) -> None:
    """Turn caching off. The steps detect completed work themselves; a cache compares only their parameters."""
    for task in tasks:
        task.set_caching_options(False)


def add_store_credentials(tasks: Iterable[Any], store_secret: Any) -> None:
    """Set the variables of object stores from the keys of an optional Secret, for steps that read or write a store.

    A step that only waits for a job, or changes the workspace, has none: a workflow has each of these 19 four times for every task,
    and for a training another four times.
    """
    for task in tasks:
        kubernetes.use_secret_as_env(task, secret_name=store_secret, secret_key_to_env=_STORE, optional=True)


def add_hub_credentials(tasks: Iterable[Any], hub_secret: Any) -> None:
    """Set the token of the hub from an optional Secret, for steps that read or write the hub; pods of jobs reference it themselves."""
    for task in tasks:
        kubernetes.use_secret_as_env(task, secret_name=hub_secret, secret_key_to_env=_HUB, optional=True)


def add_tracking(tasks: Iterable[Any], tracking_secret: Any) -> None:
    """Set the environment variables of tracking servers from the keys of an optional Secret."""
    for task in tasks:
        kubernetes.use_secret_as_env(task, secret_name=tracking_secret, secret_key_to_env=_TRACKING, optional=True)


def mount_workspace(tasks: Iterable[Any], claim: Any) -> None:
    """Mount the claim of the workspace at MOUNT."""
    for task in tasks:
        kubernetes.mount_pvc(task, pvc_name=claim, mount_path=MOUNT)
