"""Runs one pod: volumes, init containers in order, containers, restarts, termination, and status updates.

A worker derives the state of its pod only from files, so that a new worker can take over from one that died.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

from trainwright.api.errors import ApiError, Conflict, NotFound
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of, uid_of
from trainwright.api.times import now
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.node.container import ContainerRun, kill_exec_processes, kill_pod_processes, latest_run, run_of
from trainwright.controlplane.node.container_context import NodeServices, create_context
from trainwright.controlplane.node.environment import expand_references
from trainwright.controlplane.node.images import command_of_image
from trainwright.controlplane.node.pod_status import ContainerState, pod_status
from trainwright.controlplane.node.unenforced import REASON, unenforced_message
from trainwright.controlplane.node.volumes import VolumeError

POLL_SECONDS = 0.05
REFRESH_SECONDS = 600.0
RETRY_SECONDS = 2.0
_BACKOFF_SECONDS = (0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0)
"""Delay before the n-th restart of a container, like a kubelet."""
log = logging.getLogger(__name__)


class PodWorker:
    """Runs in its own thread from `start` until the pod is deleted."""

    def __init__(self, pod: Obj, services: NodeServices):
        self.uid = uid_of(pod)
        self.folder = services.pods_folder / self.uid
        self._pod, self._services = pod, services
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._terminated_at: float | None = None
        self._refreshed = 0.0
        self._thread = threading.Thread(target=self._run, name=f"pod-{name_of(pod)}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def update(self, pod: Obj) -> None:
        """Set the changed pod object; it may be terminating."""
        self._pod = pod
        self._changed.set()

    def stop_watching(self) -> None:
        """Stop the worker without touching the pod's processes; another worker can take over."""
        self._stopping.set()
        self._changed.set()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, seconds: float) -> None:
        """Wait for the end of the worker. One that is not started yet, and was told to stop watching, does nothing when it is."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._step():
                    return
                wait = POLL_SECONDS
            except VolumeError as error:
                self._publish_waiting("CreateContainerConfigError", str(error))
                wait = RETRY_SECONDS
            except NotFound:
                self._kill_everything()  # the pod was deleted without waiting for this node
                return
            except (ApiError, OSError) as error:
                log.warning("pod step failed pod=%s/%s error=%s", namespace_of(self._pod), name_of(self._pod), error)
                self._publish_waiting("RunContainerError", str(error))
                wait = RETRY_SECONDS
            self._changed.wait(wait)
            self._changed.clear()

    def _step(self) -> bool:
        """Observe, act, and update the status. Returns whether the worker is done."""
        pod = self._pod
        if is_deleting(pod):
            return self._terminate()
        if self._phase() in ("Succeeded", "Failed"):
            return False  # wait for its deletion
        self._refresh_volumes()
        init, main = self._look("initContainers"), self._look("containers")
        if not self._start_next(init, "initContainers", one_by_one=True):
            self._start_next(main, "containers", one_by_one=False)
        self._publish(self._look("initContainers"), self._look("containers"))
        if self._phase() in ("Succeeded", "Failed"):
            self._kill_everything()
        return False

    def _phase(self) -> str:
        return str((self._pod.get("status") or {}).get("phase") or "Pending")

    def _look(self, group: str) -> list[ContainerState]:
        return [self._state(container) for container in self._pod["spec"].get(group) or []]

    def _state(self, container: Obj) -> ContainerState:
        state = ContainerState(container["name"], container.get("image", ""))
        run = latest_run(container["name"], self.folder)
        if run is None:
            return replace(state, waiting="PodInitializing")
        last_terminated = run_of(run.name, run.attempt - 1, self.folder).termination() if run.attempt else None
        state = replace(
            state, restarts=run.attempt, last_terminated=last_terminated, identity=f"{self.uid}/{run.name}/{run.attempt}"
        )
        terminated = run.termination()
        if terminated is not None:
            return replace(state, terminated=terminated)
        return replace(state, running_since=run.started_at() or time.time())

    def _start_next(self, states: list[ContainerState], group: str, *, one_by_one: bool) -> bool:
        """Start or restart containers. Returns whether a later group must wait for this one."""
        waiting = False
        for container, state in zip(self._pod["spec"].get(group) or [], states, strict=True):
            done = state.terminated is not None and state.terminated.code == 0 and (one_by_one or self._policy() != "Always")
            if done:
                continue
            if state.terminated is None and state.running_since is None:
                self._launch(container, 0)
            elif state.terminated is not None and self._policy() != "Never" and self._is_backoff_over(state):
                self._launch(container, state.restarts + 1)
            waiting = True
            if one_by_one:
                break
        return waiting

    def _policy(self) -> str:
        return str(self._pod["spec"].get("restartPolicy", "Always"))

    def _is_backoff_over(self, state: ContainerState) -> bool:
        assert state.terminated is not None
        wait = _BACKOFF_SECONDS[min(state.restarts, len(_BACKOFF_SECONDS) - 1)]
        return time.time() - state.terminated.finished_at >= wait

    def _launch(self, container: Obj, attempt: int) -> None:
        pod = self._pod
        context = create_context(pod, container, self.folder, self._services)
        command = container.get("command") or command_of_image(container.get("image", ""))
        if not command:
            raise VolumeError(
                f"container {container['name']!r} has no command, and the image {container.get('image')!r} cannot be run: "
                "an embedded cluster runs commands as local processes"
            )
        if not self._latest_runs():
            self._report_unenforced()
        run = run_of(container["name"], attempt, self.folder)
        if attempt:
            kill_exec_processes(run_of(run.name, attempt - 1, self.folder), self.uid)
        arguments = [*command, *(container.get("args") or [])]
        run.start([context.rewrite(expand_references(argument, context.env)) for argument in arguments], context.env, context.cwd)
        log.info(
            "container started pod=%s/%s container=%s attempt=%d", namespace_of(pod), name_of(pod), container["name"], attempt
        )

    def _report_unenforced(self) -> None:
        if message := unenforced_message(self._pod):
            pod = {"apiVersion": POD.api_version, "kind": POD.kind, **self._pod}
            record_event(self._services.cluster, pod, "Normal", REASON, message, "trainwright-node")

    def _refresh_volumes(self) -> None:
        """Periodically rewrite volumes, because tokens expire and ConfigMaps change."""
        if time.monotonic() - self._refreshed > REFRESH_SECONDS:
            self._services.volumes.make(self._pod, self.folder)
            self._refreshed = time.monotonic()

    def _terminate(self) -> bool:
        """Send SIGTERM, and SIGKILL after the grace period; then write the last status and delete the pod object."""
        runs = [run for run in self._latest_runs() if run.termination() is None]
        if runs:
            grace = self._pod["metadata"].get("deletionGracePeriodSeconds", 30)
            if self._terminated_at is None:
                self._terminated_at = time.monotonic()
                for run in runs:
                    run.signal(signal.SIGTERM)
            elif time.monotonic() - self._terminated_at > grace:
                for run in runs:
                    run.signal(signal.SIGKILL)
            return False
        self._publish(self._look("initContainers"), self._look("containers"))
        self._kill_everything()
        try:
            self._services.cluster.delete(POD, name_of(self._pod), namespace_of(self._pod), uid=self.uid, grace_period_seconds=0)
        except (NotFound, Conflict):
            log.debug("pod already gone pod=%s/%s", namespace_of(self._pod), name_of(self._pod))
        return True

    def _latest_runs(self) -> list[ContainerRun]:
        containers = [*(self._pod["spec"].get("initContainers") or []), *(self._pod["spec"].get("containers") or [])]
        runs = (latest_run(container["name"], self.folder) for container in containers)
        return [run for run in runs if run is not None]

    def _kill_everything(self) -> None:
        """Kill all processes and remove scratch space. Logs are kept until the folder is removed."""
        for run in self._latest_runs():
            if run.termination() is None:
                run.signal(signal.SIGKILL)
        kill_pod_processes(self.uid)
        for scratch in ("work", "tmp", "home"):
            shutil.rmtree(self.folder / scratch, ignore_errors=True)

    def _publish(self, init: list[ContainerState], main: list[ContainerState]) -> None:
        status = pod_status(self._pod, init, main, now())
        self._write(status)

    def _publish_waiting(self, reason: str, message: str) -> None:
        try:
            states = [
                replace(ContainerState(c["name"], c.get("image", "")), waiting=reason, waiting_message=message)
                for c in self._waiting()
            ]
            if states:
                self._write(pod_status(self._pod, self._look("initContainers"), states, now()))
        except (ApiError, OSError) as error:
            log.warning("pod status not written pod=%s/%s error=%s", namespace_of(self._pod), name_of(self._pod), error)

    def _waiting(self) -> list[Obj]:
        return [] if self._latest_runs() else list(self._pod["spec"].get("containers") or [])

    def _write(self, status: Obj) -> None:
        if status == (self._pod.get("status") or {}):
            return
        stored = self._services.cluster.patch(
            POD, name_of(self._pod), {"status": status}, namespace_of(self._pod), subresource="status"
        )
        if uid_of(stored) == self.uid:
            self._pod = stored if not is_deleting(self._pod) else {**stored, "metadata": self._pod["metadata"]}


def remove_folder(folder: Path) -> None:
    """Remove the logs and volumes of a deleted pod."""
    trash = folder.with_name(f".{folder.name}.removed")
    try:
        os.replace(folder, trash)
    except FileNotFoundError:
        return
    shutil.rmtree(trash, ignore_errors=True)
