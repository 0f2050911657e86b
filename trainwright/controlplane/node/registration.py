"""This machine as the cluster's Node: registered with its resources and addresses, and kept Ready for as long as it takes pods.

Readers of the Node must not see Ready while it takes no pods. The condition is one task of the node's upkeep thread, in which an error
of one task does not stop the others.
"""

from __future__ import annotations

import logging
import os
import platform
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from trainwright.api import names
from trainwright.api.errors import AlreadyExists
from trainwright.api.kinds import NODE
from trainwright.api.objects import Obj
from trainwright.api.times import now
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.gpus import gpu_count, gpu_mebibytes
from trainwright.controlplane.life_signs import LifeSign
from trainwright.controlplane.node.isolation.support import Support

NODE_NAME = "local"
ISOLATION_CONDITION = "PodIsolation"
EVERY_SECONDS = 5.0
log = logging.getLogger(__name__)


def register(cluster: Cluster, folder: Path, isolation: Support) -> None:
    """Create or update the Node object. `folder` is on the disk that pods use. Raises ApiError."""
    disk = shutil.disk_usage(folder)
    resources: Obj = {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') // 1024}Ki",
        "pods": "1000",
    }
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
    except AlreadyExists:  # of an earlier start: labels may have changed
        cluster.patch(NODE, NODE_NAME, {"metadata": {**metadata, "labels": {names.GPU_MEMORY_LABEL: None, **labels}}})
    cluster.patch(NODE, NODE_NAME, {"status": status}, subresource="status")


def _condition(kind: str, value: bool, reason: str, message: str) -> Obj:
    status = "True" if value else "False"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now()}


def ready_condition(problems: Sequence[str]) -> Obj:
    """The condition Ready of a node with these problems."""
    return _condition("Ready", not problems, "AgentNotReady" if problems else "AgentReady", "; ".join(problems))


class ReadyCondition:
    """Writes the condition at each `look` after which `problems` have changed. Not thread-safe."""

    def __init__(self, cluster: Cluster, problems: Callable[[], list[str]]):
        self._cluster, self._problems = cluster, problems
        self._told: list[str] = []
        """The registration has written that there are none."""

    def look(self) -> None:
        """Write the condition if it has changed. Raises ApiError."""
        problems = self._problems()
        if problems == self._told:
            return  # written before
        if problems:
            log.error("event=node_not_ready problems=%r", "; ".join(problems))
        others = [each for each in self._cluster.get(NODE, NODE_NAME)["status"]["conditions"] if each["type"] != "Ready"]
        status = {"conditions": [ready_condition(problems), *others]}
        self._cluster.patch(NODE, NODE_NAME, {"status": status}, subresource="status")
        self._told = problems


class Upkeep:
    """Calls all `tasks` in turn, until `stop` is set."""

    def __init__(self, tasks: Sequence[Callable[[], None]], stop: threading.Event):
        self._tasks, self._stop = tuple(tasks), stop
        self._thread = threading.Thread(target=self._run, name="node-upkeep", daemon=True)
        self._sign = LifeSign(self._thread)

    def start(self) -> None:
        self._thread.start()

    def problems(self) -> list[str]:
        """Why nothing is kept up: the thread has ended, or does not get done with a task."""
        return self._sign.problems()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            with self._sign.turn():
                for task in self._tasks:
                    self._do(task)

    def _do(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception:  # such as a full disk: it is done again after a while
            log.exception("event=upkeep_failed task=%s", getattr(task, "__qualname__", task))
