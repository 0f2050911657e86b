"""The node agent: runs a worker for every pod bound to this node, including those from before a restart."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
from pathlib import Path

from trainwright.api import names
from trainwright.api.errors import AlreadyExists, NotFound
from trainwright.api.kinds import JOBSET, NODE, POD
from trainwright.api.objects import Obj, labels_of, namespace_of, uid_of
from trainwright.api.times import now
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.reflector import Reflector
from trainwright.controlplane.node.container import containers_in, kill_pod_processes, latest_run
from trainwright.controlplane.node.container_context import NodeServices
from trainwright.controlplane.node.node_sessions import NodeSessions
from trainwright.controlplane.node.pod_worker import PodWorker, remove_folder
from trainwright.controlplane.node.rendezvous import RendezvousPorts
from trainwright.controlplane.node.shutdown import stop_runs
from trainwright.controlplane.node.volumes import IssueToken, VolumeMaker

NODE_NAME = "local"
log = logging.getLogger(__name__)


class NodeAgent:
    """Runs pods of `cluster` below the folder `home`. Only one agent per folder."""

    def __init__(self, cluster: Cluster, home: Path, issue_token: IssueToken):
        self._cluster = cluster
        self._pods_folder = home / "pods"
        self._pods_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._workers: dict[str, PodWorker] = {}
        self._stop = threading.Event()
        self._ports = RendezvousPorts(home / "ports.json")
        volumes = VolumeMaker(cluster, home / "claims", issue_token)
        self._services = NodeServices(cluster, volumes, self._ports, self._pods_folder, self._threads_for)
        self.sessions = NodeSessions(self._services)
        selector = f"spec.nodeName={NODE_NAME}"
        self._reflector = Reflector(cluster, POD, handler=self._pod_changed, field_selector=selector, stop=self._stop)

    def start(self) -> None:
        """Register the node, clean up after deleted pods, and start watching pods."""
        self._register()
        self._remove_orphaned_pods()
        self._reflector.start()

    def stop(self, seconds: float = 30.0) -> None:
        """Stop all processes like a node shutdown. Pods are restarted when the node starts again."""
        self._stop.set()
        workers = list(self._workers.values())
        for worker in workers:
            worker.stop_watching()
        for worker in workers:
            worker.join(5)
        self._stop_processes([worker.folder for worker in workers], seconds)

    def _stop_processes(self, folders: list[Path], seconds: float) -> None:
        runs = [run for folder in folders for name in containers_in(folder) if (run := latest_run(name, folder)) is not None]
        stop_runs(runs, seconds)

    def _pod_changed(self, event: str, pod: Obj) -> None:
        uid = uid_of(pod)
        worker = self._workers.get(uid)
        if event == "DELETED":
            self._forget(pod, worker)
        elif worker is None or not worker.is_alive():
            self._workers[uid] = worker = PodWorker(pod, self._services)
            worker.start()
        else:
            worker.update(pod)

    def _forget(self, pod: Obj, worker: PodWorker | None) -> None:
        self._workers.pop(uid_of(pod), None)
        if worker is not None:
            worker.stop_watching()
        threading.Thread(target=self._clean_up, args=(pod, worker), name="pod-cleanup", daemon=True).start()

    def _clean_up(self, pod: Obj, worker: PodWorker | None) -> None:
        if worker is not None:
            worker.join(5)
        uid = uid_of(pod)
        self._stop_processes([self._pods_folder / uid], 0)
        kill_pod_processes(uid)
        remove_folder(self._pods_folder / uid)
        jobset = labels_of(pod).get(names.JOBSET_UID_LABEL)
        if jobset and not self._jobset_exists(pod, jobset):
            self._ports.release(jobset)

    def _jobset_exists(self, pod: Obj, jobset_uid: str) -> bool:
        try:
            return uid_of(self._cluster.get(JOBSET, labels_of(pod)[names.JOBSET_NAME_LABEL], namespace_of(pod))) == jobset_uid
        except NotFound:
            return False

    def _remove_orphaned_pods(self) -> None:
        """Kill processes and remove folders of pods that were deleted while this node was stopped."""
        known = {uid_of(pod) for pod in self._cluster.list(POD).items}
        for folder in self._pods_folder.iterdir():
            if folder.name not in known:
                self._stop_processes([folder], 0)
                kill_pod_processes(folder.name)
                remove_folder(folder)

    def _register(self) -> None:
        disk = shutil.disk_usage(self._pods_folder)
        resources: Obj = {"cpu": str(os.cpu_count() or 1), "memory": f"{_memory_kib()}Ki", "pods": "1000"}
        resources["nvidia.com/gpu"] = str(gpus) if (gpus := _gpu_count()) else None  # None removes the value of an earlier start
        status = {
            "capacity": {**resources, "ephemeral-storage": f"{disk.total // 1024}Ki"},
            "allocatable": {**resources, "ephemeral-storage": f"{disk.free // 1024}Ki"},
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "AgentReady", "message": "", "lastTransitionTime": now()}
            ],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": NODE_NAME}],
        }
        labels = {"kubernetes.io/hostname": NODE_NAME, "kubernetes.io/os": os.uname().sysname.lower()}
        metadata = {"name": NODE_NAME, "labels": labels, "annotations": {names.SINGLE_NODE_ANNOTATION: "true"}}
        try:
            self._cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        except AlreadyExists:
            self._cluster.patch(NODE, NODE_NAME, {"metadata": metadata})
        self._cluster.patch(NODE, NODE_NAME, {"status": status}, subresource="status")

    def _threads_for(self, pod: Obj) -> int:
        """Divide the cores among the pods of a JobSet, or else among all running pods, to avoid oversubscription."""
        running = sum(worker.is_alive() for worker in self._workers.values())
        jobset = labels_of(pod).get(names.JOBSET_UID_LABEL)
        siblings = sum(labels_of(other).get(names.JOBSET_UID_LABEL) == jobset for other in self._reflector.known.values())
        return max((os.cpu_count() or 1) // max(siblings if jobset else running, 1), 1)


def _memory_kib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024


def _gpu_count() -> int:
    """Return the number of NVIDIA GPUs that nvidia-smi lists; 0 without a driver."""
    if shutil.which("nvidia-smi") is None:
        return 0
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        log.warning("nvidia-smi timed out; this node has no GPU capacity")
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
