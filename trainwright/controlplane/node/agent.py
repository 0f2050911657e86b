"""The node agent: runs a worker for every pod bound to this node, including those from before a restart."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainwright.api import names
from trainwright.api.errors import NotFound
from trainwright.api.kinds import JOBSET, POD, SERVICE
from trainwright.api.objects import Obj, labels_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.reflector import Reflector
from trainwright.controlplane.environments import EnvironmentStore, Preparations
from trainwright.controlplane.host_paths import HostPathPolicy, shared_folders
from trainwright.controlplane.node.container import kill_pod_processes, latest_run, latest_runs, stop_runs
from trainwright.controlplane.node.container_context import NodeServices
from trainwright.controlplane.node.event_recorder import EventRecorder
from trainwright.controlplane.node.images import ImageCatalogue
from trainwright.controlplane.node.isolation.support import isolation_support
from trainwright.controlplane.node.lifecycle import events
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, containers_of
from trainwright.controlplane.node.lifecycle.decision import stop_message
from trainwright.controlplane.node.lifecycle.events import PodEvent
from trainwright.controlplane.node.limits.control_groups import ControlGroups
from trainwright.controlplane.node.mpi.job_sockets import JobSockets
from trainwright.controlplane.node.network.pod_network import PodNetwork, RendezvousPorts
from trainwright.controlplane.node.pod_changes import Changes, PodChanges
from trainwright.controlplane.node.pod_worker import PodWorker, has_ended, remove_folder
from trainwright.controlplane.node.registration import NODE_NAME, ReadyCondition, Upkeep, register
from trainwright.controlplane.node.sessions.node_sessions import NodeSessions, start_remote_command
from trainwright.controlplane.node.supervisor.start_supervisor import start_directly, supervisor_spawner
from trainwright.controlplane.node.volumes.files import spread_folders
from trainwright.controlplane.node.volumes.maker import VolumeMaker
from trainwright.controlplane.node.volumes.projections import IssueToken
from trainwright.controlplane.node.warm_start.warm_parent import WarmParent

_HANDLER_THREADS = 32
"""For probes and hooks of all pods."""
log = logging.getLogger(__name__)


class NodeAgent:
    """Runs pods of `cluster` below the folder `home`. Only one agent per folder.

    `api_address` returns host and port of the API server, for the variables of pods; `authority` is the certificate that its own is
    verified with. `host_paths` says which folders volumes may be; by default those outside of the folder that contains `home`.
    `token_seconds` is the longest life of a service account token; `launcher` the text of a Python program that starts torchrun.
    """

    def __init__(
        self,
        cluster: Cluster,
        home: Path,
        issue_token: IssueToken,
        api_address: Callable[[], tuple[str, int] | None] = lambda: None,
        authority: str = "",
        host_paths: HostPathPolicy | None = None,
        token_seconds: int | None = None,
        launcher: Callable[[], str] | None = None,
    ):
        self._cluster = cluster
        self._pods_folder = home / "pods"
        self._pods_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        spread_folders(self._pods_folder)
        self._workers: dict[str, PodWorker] = {}
        self._stop = threading.Event()
        self._ports = RendezvousPorts(home / "ports.json")
        self._network = PodNetwork(home, self._pods_folder, api_address)
        policy = host_paths or HostPathPolicy(home.parent, home / "claims")
        self._volumes = VolumeMaker(
            cluster, home / "claims", issue_token, authority=authority, host_paths=policy, token_seconds=token_seconds
        )
        self._events = EventRecorder(cluster)
        self._changes = Changes(home / "changes", self._wake)
        self._pool = ThreadPoolExecutor(_HANDLER_THREADS, thread_name_prefix="pod-handler")
        self._spawner = supervisor_spawner()
        store = EnvironmentStore.chosen()
        self._environments = Preparations(store)
        start_supervisor = self._spawner.start if self._spawner is not None else start_directly
        self._warm_parent = WarmParent(start_supervisor, launcher=launcher)
        self._services = NodeServices(
            cluster=cluster,
            volumes=self._volumes,
            ports=self._ports,
            pods_folder=self._pods_folder,
            threads_for=self._threads_for,
            events=self._events,
            images=ImageCatalogue(home.parent, store),
            environments=self._environments,
            isolation=isolation_support(home),
            pool=self._pool,
            address_of=self._network.address_of,
            api_address=api_address,
            mpi_folder_of=lambda pod: self._mpi_sockets.folder_of(pod),
            hidden=(Path.home(), home.parent, store.folder),
            shared=shared_folders(policy),
            cgroups=ControlGroups.find(home),
            fifo=self._changes.path if self._changes.start() else None,
            start_supervisor=start_supervisor,
            warm_parent=self._warm_parent,
        )
        if self._services.isolation.available:
            self._warm_parent.prepare_first()
        self._mpi_sockets = JobSockets(home / "mpi", functools.partial(start_remote_command, self._services))
        self.sessions = NodeSessions(self._services)
        selector = f"spec.nodeName={NODE_NAME}"
        self._pod_changes = PodChanges(self._pod_changed, self._events.record, self._stop)
        self._reflector = Reflector(cluster, POD, handler=self._pod_changes.handle, field_selector=selector, stop=self._stop)
        self._service_reflector = Reflector(
            cluster,
            SERVICE,
            handler=lambda event, service: self._network.set_service(service, exists=event != "DELETED"),
            stop=self._stop,
        )
        self._upkeep = Upkeep([self._network.write_again, ReadyCondition(cluster, self.problems).look], self._stop)

    def start(self) -> None:
        """Register the node, clean up after deleted pods, and start watching pods."""
        self._events.start()
        self._pod_changes.start()
        register(self._cluster, self._pods_folder, self._services.isolation)
        self._remove_orphaned_pods()
        self._service_reflector.start()
        self._reflector.start()
        self._upkeep.start()

    def problems(self) -> list[str]:
        """Why the node takes no pods, or says nothing of them; empty while it works."""
        parts = (self._reflector, self._service_reflector, self._pod_changes, self._events, self._changes, self._upkeep)
        return [problem for part in parts for problem in part.problems()]

    def stop(self, seconds: float = 30.0) -> None:
        """Stop all processes like a node shutdown. Pods are restarted when the node starts again."""
        self._stop.set()
        self._environments.stop()
        workers = list(self._workers.values())
        for worker in workers:
            worker.stop_watching()
        for worker in workers:
            worker.join(5)
        stop_runs([run for worker in workers for run in latest_runs(worker.folder)], seconds)
        self._mpi_sockets.stop()
        self._warm_parent.stop()
        if self._spawner is not None:
            self._spawner.stop()
        self._volumes.close()
        if self._services.cgroups is not None:
            self._services.cgroups.close()
        self._changes.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._events.stop()

    def _wake(self, uid: str) -> None:
        if (worker := self._workers.get(uid)) is not None:
            worker.wake()

    def _pod_changed(self, event: str, pod: Obj) -> None:
        uid = uid_of(pod)
        worker = self._workers.get(uid)
        if event == "DELETED":
            self._workers.pop(uid, None)
            if worker is not None:
                worker.stop_watching()
            threading.Thread(target=self._clean_up, args=(pod, worker), name="pod-cleanup", daemon=True).start()
        # One that has ended needs no worker until it is deleted; a worker that has retired is replaced.
        elif worker is None or (not worker.update(pod) and not has_ended(pod)):
            self._network.add(pod)
            self._workers[uid] = worker = PodWorker(pod, self._services)
            worker.start()

    def _clean_up(self, pod: Obj, worker: PodWorker | None) -> None:
        if worker is not None:
            worker.join(5)
        try:
            self._remove_pod(pod)
        except Exception as error:  # files and processes of the pod are left
            self._pod_changes.fail("DELETED", pod, error)

    def _remove_pod(self, pod: Obj) -> None:
        uid = uid_of(pod)
        for event in killings(pod, self._pods_folder / uid):
            self._events.record(pod, event)
        self._remove(uid)
        self._network.remove(pod)
        jobset = labels_of(pod).get(names.JOBSET_UID_LABEL)
        if not jobset:
            return  # it shares neither ports nor a socket with other pods
        try:
            found = uid_of(self._cluster.get(JOBSET, labels_of(pod)[names.JOBSET_NAME_LABEL], namespace_of(pod)))
        except NotFound:  # deleted, before or with its pods
            found = ""
        if found != jobset:
            self._ports.release(jobset)
            self._mpi_sockets.release(pod)

    def _remove(self, uid: str) -> None:
        """Kill the processes of a pod that is gone, and remove its files."""
        runs = latest_runs(self._pods_folder / uid)
        stop_runs(runs, 0)
        if not all(run.is_isolated for run in runs):
            kill_pod_processes(uid)
        remove_folder(self._pods_folder / uid)
        self._volumes.remove(uid)
        if self._services.cgroups is not None:
            self._services.cgroups.remove_pod(uid)

    def _remove_orphaned_pods(self) -> None:
        """Kill processes and remove folders of pods that were deleted while this node was stopped."""
        pods = self._cluster.list(POD).items
        known = {uid_of(pod) for pod in pods}
        for folder in self._pods_folder.iterdir():
            if folder.name not in known:
                kill_pod_processes(folder.name)
                self._remove(folder.name)
        self._volumes.remove_others(known)
        if self._services.cgroups is not None:
            self._services.cgroups.remove_others(known)
        self._network.release_others(known)
        self._mpi_sockets.restore(pods)

    def _threads_for(self, pod: Obj) -> int:
        """Divide the cores among the pods of a JobSet, or else among all running pods, to avoid oversubscription.

        Both lists are copied first: other threads add to them.
        """
        running = sum(worker.is_alive() for worker in list(self._workers.values()))
        jobset = labels_of(pod).get(names.JOBSET_UID_LABEL)
        others = [other for other in list(self._reflector.known.values()) if not has_ended(other)]
        siblings = sum(labels_of(other).get(names.JOBSET_UID_LABEL) == jobset for other in others)
        return max((os.cpu_count() or 1) // max(siblings if jobset else running, 1), 1)


def killings(pod: Obj, folder: Path) -> Iterator[PodEvent]:
    """Yield the events of the containers that run and are about to be killed. `folder` is that of the pod."""
    for spec, role in containers_of(pod):
        run = latest_run(spec["name"], folder)
        if run is not None and run.started_at() is not None and run.termination() is None:
            state = ContainerState(spec["name"], role, spec)
            yield events.about(state, "Killing", stop_message(state))
