"""Registers this machine as the cluster's node: its resources, its addresses, and how it isolates pods."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from trainwright.api import names
from trainwright.api.errors import AlreadyExists
from trainwright.api.kinds import NODE
from trainwright.api.objects import Obj
from trainwright.api.times import now
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.gpus import gpu_count, gpu_mebibytes
from trainwright.controlplane.node.isolation.support import Support

NODE_NAME = "local"
ISOLATION_CONDITION = "PodIsolation"


def register(cluster: Cluster, folder: Path, isolation: Support) -> None:
    """Create or update the Node object. `folder` is on the disk that pods use. Raises ApiError."""
    disk = shutil.disk_usage(folder)
    resources: Obj = {"cpu": str(os.cpu_count() or 1), "memory": f"{_memory_kib()}Ki", "pods": "1000"}
    resources["nvidia.com/gpu"] = str(gpus) if (gpus := gpu_count()) else None  # None removes the value of an earlier start
    mode = ("KernelNamespaces", "") if isolation.available else ("Processes", isolation.reason)
    status = {
        "capacity": {**resources, "ephemeral-storage": f"{disk.total // 1024}Ki"},
        "allocatable": {**resources, "ephemeral-storage": f"{disk.free // 1024}Ki"},
        "conditions": [
            ready_condition([]),
            _condition(ISOLATION_CONDITION, isolation.available, *mode),
        ],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": NODE_NAME}],
        "nodeInfo": {
            "kernelVersion": platform.release(),
            "operatingSystem": platform.system().lower(),
            "architecture": platform.machine(),
            "kubeletVersion": "",
        },
    }
    labels: Obj = {"kubernetes.io/hostname": NODE_NAME, "kubernetes.io/os": os.uname().sysname.lower()}
    if gpus and (size := gpu_mebibytes()):
        labels[names.GPU_MEMORY_LABEL] = str(size)
    metadata: Obj = {"name": NODE_NAME, "labels": labels, "annotations": {names.SINGLE_NODE_ANNOTATION: "true"}}
    try:
        cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    except AlreadyExists:
        cluster.patch(NODE, NODE_NAME, {"metadata": {**metadata, "labels": {names.GPU_MEMORY_LABEL: None, **labels}}})
    cluster.patch(NODE, NODE_NAME, {"status": status}, subresource="status")


def ready_condition(problems: Sequence[str]) -> Obj:
    """The condition Ready of a node with these problems."""
    return _condition("Ready", not problems, "AgentNotReady" if problems else "AgentReady", "; ".join(problems))


def _condition(kind: str, value: bool, reason: str, message: str) -> Obj:
    status = "True" if value else "False"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now()}


def _memory_kib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
