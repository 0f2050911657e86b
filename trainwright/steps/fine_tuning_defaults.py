"""What a fine-tuning on a cluster needs that nobody has named: workspace, folder of exports, GPUs. For the command and the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwright.api.quantities import parse_quantity
from trainwright.jobs.request.invalid_settings import within
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.submit.cluster_fit import nodes_of
from trainwright.steps.default_workspace import WORKSPACE
from trainwright.steps.on_cluster import MOUNT
from trainwright.storage.uri import StorageUri
from trainwright.submission.jobs_client import JobsClient

GPU = "nvidia.com/gpu"
_SHARED = "&access=ReadWriteMany"
"""A claim on one machine can be used by any number of nodes."""


def default_workspace(*, is_here: bool) -> str:
    """Return the workspace of runs on an embedded cluster of this machine, or on another one."""
    return WORKSPACE + _SHARED if is_here else WORKSPACE


def default_exports(*, is_here: bool) -> str:
    """Return the URI of the folder of exports: of an embedded cluster in the current folder, of another one in the workspace."""
    return str(StorageUri.from_path(Path("exports"))) if is_here else f"file://{MOUNT}/exports"


def gpus_of_nodes(cluster: JobsClient) -> int | None:
    """Return 1 if a node has a GPU, else 0; None if the nodes cannot be listed."""
    nodes = nodes_of(cluster)
    if not nodes:  # without permission, or with none: nobody can say
        return None
    amounts = [((node.get("status") or {}).get("allocatable") or {}).get(GPU, 0) for node in nodes]
    return int(any(parse_quantity(amount).value > 0 for amount in amounts))


def without_gpu(training: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a training, with those that it needs without a GPU unless they are set."""
    settings = dict(training.get("settings") or {})
    settings.setdefault("cpu", True)
    return {"num_proc_per_node": 1, **training, "settings": settings}


def with_secrets(training: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a training with these Secrets, of which empty ones are not set.

    Raises InvalidSettings for one that the settings have with another name; LiteralSecret.
    """
    given = {name: secret for name, secret in secrets.items() if secret}
    if not given:
        return dict(training)
    with within("training"):
        asked = TrainRequest.parse_some({"secrets": training.get("secrets") or {}})
        return {**training, **asked.joined(TrainRequest.parse_some({"secrets": given})).given_values()}
