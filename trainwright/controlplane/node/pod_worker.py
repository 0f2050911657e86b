"""Runs one pod in its own thread: looks at its containers, decides, acts, and publishes status and events.

The thread repeats these steps: at the latest when a step asks for it, on news, and again after an error.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from trainwright.api.errors import ApiError, Conflict, NotFound
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of, uid_of
from trainwright.controlplane.node.container import containers_in, kill_pod_processes, latest_runs
from trainwright.controlplane.node.container_context import NodeServices
from trainwright.controlplane.node.container_keeper import ContainerKeeper
from trainwright.controlplane.node.environment import proxies_with_credentials
from trainwright.controlplane.node.eviction import Eviction
from trainwright.controlplane.node.isolation.support import NOT_HONOURED, not_honoured_message
from trainwright.controlplane.node.lifecycle import events
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, containers_of, visible_states
from trainwright.controlplane.node.lifecycle.decision import (
    DEADLINE_REASON,
    TERMINAL,
    Decision,
    Ending,
    Launch,
    Stop,
    decide,
    ending_of,
    is_terminal,
)
from trainwright.controlplane.node.lifecycle.events import PodEvent
from trainwright.controlplane.node.lifecycle.pod_status import pod_status, shows_back_off
from trainwright.controlplane.node.volumes.references import VolumeError

STARTING_SECONDS = 0.05
STARTING_PATIENCE_SECONDS = 1.0
REFRESH_SECONDS = 60.0
IDLE_SECONDS = 5.0
"""Between looks at a pod of which nothing is heard: a supervisor that was killed says nothing."""
RETRY_SECONDS = 1.0
log = logging.getLogger(__name__)


class PodWorker:
    """Runs from `start` until the pod has ended or is deleted. What happens after its end is for another worker."""

    def __init__(self, pod: Obj, services: NodeServices):
        self.uid = uid_of(pod)
        self.folder = services.pods_folder / self.uid
        self._pod, self._services = pod, services
        self._taking = threading.Lock()
        self._loop = StepLoop(pod, self._step_until_deleted, self._is_quiet, self._close_keepers)
        self._keepers = [
            ContainerKeeper(spec, role, services, lambda: self._pod, self._loop.wake) for spec, role in containers_of(pod)
        ]
        self._eviction = Eviction(pod, self.folder, services)
        self._are_volumes_made = self._is_cleared = self._is_deadline_told = False
        self._refreshed, self._starting_since = 0.0, time.monotonic()
        self._due_at = math.inf

    def start(self) -> None:
        self._loop.start()

    def update(self, pod: Obj) -> bool:
        """Take a changed pod object; it may be terminating. Returns False if this worker has nothing to do with it any more."""
        return self._loop.offer(lambda: self._take(pod))

    def _take(self, pod: Obj) -> None:
        """Take a pod object from the watch, or the answer to a write of our own, unless the other one has come first and is newer."""
        with self._taking:
            if _version(pod) >= _version(self._pod):
                self._pod = pod

    def wake(self) -> None:
        """Look at the containers: something has happened."""
        self._loop.wake()

    def stop_watching(self) -> None:
        """Stop the worker without touching the pod's processes; another worker can take over."""
        self._loop.stop()

    def is_alive(self) -> bool:
        return self._loop.is_alive()

    def join(self, seconds: float) -> None:
        """Wait for the end of the worker. One that is not started yet, and was told to stop watching, does nothing when it is."""
        self._loop.join(seconds)

    def _close_keepers(self) -> None:
        for keeper in self._keepers:
            keeper.close()

    def _step_until_deleted(self) -> float | None:
        try:
            return self._step()
        except NotFound:
            self._clear()  # the pod was deleted without waiting for this node
            return None

    def _step(self) -> float | None:
        """Look, decide, publish, act. Returns in how many seconds to look again at the latest, or None if nothing is left to do."""
        pod, now = self._pod, time.time()
        if has_ended(pod):  # a worker that starts with such a pod clears what a crash has left
            self._clear()
            return None
        observed = tuple(keeper.observe() for keeper in self._keepers)
        states = visible_states(pod, observed)
        ending = self._ending(states, now)
        if ending is None and not self._make_volumes():  # no container starts without them
            self._publish(states, ending, now)
            return RETRY_SECONDS
        decision = decide(pod, states, ending, now)
        if ending is not None or not self._is_starting(states, decision):
            self._publish(states, ending, now)
        if is_deleting(self._pod) and not any(state.is_alive for state in observed):
            self._finish_deletion()
            return None  # the object is gone: no more steps
        has_acted = self._act(decision)
        self._tell_of_waiting(states)
        return 0.0 if has_acted or states != observed else self._wait(observed, decision.wake_at, now)

    def _is_starting(self, states: tuple[ContainerState, ...], decision: Decision) -> bool:
        """Whether to publish later: while a container is about to run, for a moment, a status would say nothing new.

        Like in a kubelet, which starts containers one by one and looks then: one that ends while the next one is started is not
        seen running, and one that is replaced for its probe not as ended.
        """
        is_launching = any(state.run is not None and state.is_alive and state.run.started_at is None for state in states)
        launches = [action for action in decision.actions if isinstance(action, Launch)]
        is_about_to = any(action.attempt == 0 or action.container.is_replaced for action in launches)
        if not is_launching and not is_about_to:  # the patience counts from when something begins
            self._starting_since = time.monotonic()
            return False  # nothing is about to run: the status is up to date
        return time.monotonic() - self._starting_since < STARTING_PATIENCE_SECONDS

    def _wait(self, states: tuple[ContainerState, ...], wake_at: float | None, now: float) -> float:
        due = [wait for keeper in self._keepers if (wait := keeper.advance()) is not None]
        if wake_at is not None:
            due.append(wake_at - now)
        if any(state.run is not None and state.is_alive and state.run.started_at is None for state in states):
            due.append(STARTING_SECONDS)
        first = min(due, default=math.inf)
        self._due_at = time.monotonic() + first  # the wall clock may be set meanwhile
        return max(min(first, IDLE_SECONDS), 0.001)

    def _is_quiet(self) -> bool:
        """Whether another look would find nothing new: every run still has its supervisor, and nothing is due by itself."""
        now = time.monotonic()
        if now >= self._due_at or now - self._refreshed >= REFRESH_SECONDS or self._eviction.has_limits:
            return False  # something may have changed without a sign
        return all(keeper.is_quiet() for keeper in self._keepers)

    def _ending(self, states: tuple[ContainerState, ...], now: float) -> Ending | None:
        message = self._eviction.message(time.monotonic(), is_running=any(state.is_alive for state in states))
        ending = ending_of(self._pod, states, now, message)
        if ending is not None and ending.reason == DEADLINE_REASON and not self._is_deadline_told:
            self._is_deadline_told = True
            self._services.events.record(self._pod, PodEvent("Normal", ending.reason, ending.message))
        return ending

    def _make_volumes(self) -> bool:
        """Make the volumes; then from time to time again, because tokens expire and ConfigMaps change. False if one cannot be made."""
        if self._are_volumes_made and time.monotonic() - self._refreshed < REFRESH_SECONDS:
            return True  # made, and fresh enough
        try:
            self._services.volumes.make(self._pod, self.folder)
        except VolumeError as error:  # retried with the next step
            self._services.events.record(self._pod, events.volume_failed(error.volume, str(error)))
            return self._are_volumes_made  # what a container has it keeps
        if not self._are_volumes_made and not containers_in(self.folder):
            settings, is_root = self._services.isolation, os.geteuid() == 0
            message = not_honoured_message(self._pod, settings, is_root=is_root, image_user=self._services.images.user_of)
            if message:
                self._services.events.record(self._pod, PodEvent("Normal", NOT_HONOURED, message))
            if left_out := proxies_with_credentials():
                self._services.events.record(self._pod, events.proxy_left_out(left_out))
        self._are_volumes_made, self._refreshed = True, time.monotonic()
        return True

    def _act(self, decision: Decision) -> bool:
        """Do what was decided; containers are started one after the other. Returns whether to look again at once."""
        for action in decision.actions:
            keeper = next(keeper for keeper in self._keepers if keeper.name == action.container.name)
            if isinstance(action, Stop):
                keeper.stop(action)
            elif keeper.launch(action):
                self._starting_since = time.monotonic()
                return False  # the next one after a look at this one, like in a kubelet
        return any(isinstance(action, Launch) for action in decision.actions)

    def _tell_of_waiting(self, states: tuple[ContainerState, ...]) -> None:
        """Record the back-off of containers that wait, once that has been published."""
        now = time.time()
        for keeper, state in zip(self._keepers, states, strict=True):
            if shows_back_off(self._pod, state, now):
                keeper.announce_waiting(f"{name_of(self._pod)}_{namespace_of(self._pod)}({self.uid})")

    def _finish_deletion(self) -> None:
        """Delete the object of a pod that has stopped."""
        self._clear()
        try:
            self._services.cluster.delete(POD, name_of(self._pod), namespace_of(self._pod), uid=self.uid, grace_period_seconds=0)
        except (NotFound, Conflict):  # deleted by force, or replaced
            log.debug("pod already gone pod=%s/%s", namespace_of(self._pod), name_of(self._pod))

    def _clear(self) -> None:
        """Kill what is left, and remove scratch space. Logs are kept until the folder is removed."""
        if self._is_cleared:
            return  # the steps after the end come here again
        self._is_cleared = True
        runs = latest_runs(self.folder)
        for run in runs:
            if run.termination() is None:
                run.signal(signal.SIGKILL)
        if not all(run.is_isolated for run in runs):  # the others have ended with their PID namespaces
            kill_pod_processes(self.uid)
        for scratch in ("work", "tmp", "home"):
            shutil.rmtree(self.folder / scratch, ignore_errors=True)

    def _publish(self, states: tuple[ContainerState, ...], ending: Ending | None, now: float) -> None:
        address = self._services.address_of(self._pod) if self._are_volumes_made else ""
        status = pod_status(self._pod, states, ending, now, address)
        if status == (self._pod.get("status") or {}):
            return  # nothing has changed since the last write
        is_evicted = ending is not None and ending.reason and status["phase"] in TERMINAL
        stored = self._services.cluster.patch(
            POD, name_of(self._pod), {"status": status}, namespace_of(self._pod), subresource="status"
        )
        if uid_of(stored) != self.uid:  # deleted by force, and created again under its name
            raise NotFound(f"pod {name_of(self._pod)!r} was replaced")
        self._take(stored)
        if is_evicted:
            self._eviction.announce()


def _version(pod: Obj) -> int:
    return int(pod["metadata"].get("resourceVersion") or 0)


def has_ended(pod: Obj) -> bool:
    """Whether nothing is left to do for a pod until it is deleted."""
    return is_terminal(pod) and not is_deleting(pod)


def remove_folder(folder: Path) -> None:
    """Remove the logs and volumes of a deleted pod."""
    trash = folder.with_name(f".{folder.name}.removed")
    try:
        folder.rename(trash)
    except FileNotFoundError:  # removed before
        return
    shutil.rmtree(trash, ignore_errors=True)


class StepLoop:
    """Runs from `start` until a step returns None and no news has arrived. A new loop handles later news.

    Args:
        pod: Names the thread and the lines of the log.
        step: Returns in how many seconds to look again at the latest, or None if nothing is left to do.
        is_quiet: Whether only news can change anything, asked after an idle wait.
        on_end: Called in the thread when the loop has ended.
        idle_seconds: The longest wait; it is prolonged while the pod is quiet.
        retry_seconds: Wait after a step that has failed.
    """

    def __init__(
        self,
        pod: Obj,
        step: Callable[[], float | None],
        is_quiet: Callable[[], bool],
        on_end: Callable[[], None],
        *,
        idle_seconds: float = IDLE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ):
        self._names = (namespace_of(pod), name_of(pod))
        self._step, self._is_quiet, self._on_end = step, is_quiet, on_end
        self._idle_seconds, self._retry_seconds = idle_seconds, retry_seconds
        self._changed = threading.Event()
        self._handover = threading.Lock()
        self._is_retired = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pod-{name_of(pod)}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, take: Callable[[], None]) -> bool:
        """Call `take`, which takes news of the pod, and wake the loop. Returns False if the loop has ended: nothing is taken then."""
        with self._handover:
            if self._is_retired:
                return False  # its thread has ended: another worker takes the news
            take()
            self._changed.set()
            return True

    def wake(self) -> None:
        """Take a step: something has happened."""
        self._changed.set()

    def stop(self) -> None:
        """End the loop after the current step."""
        self._stopping.set()
        self._changed.set()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, seconds: float) -> None:
        """Wait for the end of the loop. One that is not started yet, and was told to stop, does nothing when it is."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._changed.clear()
                wait = self._guarded_step()
                if wait is not None:
                    self._sleep(wait)
                elif self._retire():
                    return  # without news meanwhile
        finally:
            self._is_retired = True
            self._on_end()

    def _guarded_step(self) -> float | None:
        """Do a step. What goes wrong is tried again: a pod whose worker has ended would be stuck."""
        try:
            return self._step()
        except (ApiError, OSError) as error:  # expected, such as a full disk: without a stack
            log.warning("pod step failed pod=%s/%s error=%s", *self._names, error)
        except Exception:  # a fault of the node: with its stack
            log.exception("pod step failed pod=%s/%s", *self._names)
        return self._retry_seconds

    def _sleep(self, seconds: float) -> None:
        """Wait for news of the pod, at most so long; longer if nothing but news can change anything."""
        while not self._changed.wait(seconds) and seconds == self._idle_seconds and self._is_quiet():
            pass

    def _retire(self) -> bool:
        """End the work on the pod, unless there is news of it."""
        with self._handover:
            self._is_retired = not self._changed.is_set()
            return self._is_retired
