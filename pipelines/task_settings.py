"""What the shipped pipelines set on tasks besides their parameters: the claim, credentials, and no caching."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from kfp import kubernetes

from trainwright.jobs.credentials.store_variables import all_store_variables

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
