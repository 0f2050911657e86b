"""Publishes the node's events about pods asynchronously and in order, so that containers do not wait for the API server."""

from __future__ import annotations

import logging
import queue
import threading

from trainwright.api.kinds import POD
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.life_signs import LifeSign
from trainwright.controlplane.node.lifecycle.events import SOURCE, PodEvent

_CAPACITY = 10_000
"""Events that wait to be written; more are written by those who record them."""
log = logging.getLogger(__name__)


class EventRecorder:
    """Start it with `start`; `stop` writes what is left."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        self._queue: queue.Queue[tuple[Obj, PodEvent] | None] = queue.Queue(_CAPACITY)
        self._thread = threading.Thread(target=self._run, name="pod-events", daemon=True)
        self._sign = LifeSign(self._thread)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write the remaining events and end. Events after that are written at once."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def problems(self) -> list[str]:
        """Why events are not written: the thread has ended, or one event is not done with."""
        return self._sign.problems()

    def record(self, pod: Obj, event: PodEvent) -> None:
        """Record an event about a pod."""
        if self._thread.is_alive():
            try:
                self._queue.put_nowait((pod, event))
                return
            except queue.Full:
                pass  # the API server is slow: this caller writes it, and waits
        self._write(pod, event)

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            try:
                with self._sign.turn():
                    self._write(*entry)
            except Exception:  # one event that cannot be written must not be the last one
                log.exception("event=pod_event_not_written reason=%s", entry[1].reason)

    def _write(self, pod: Obj, event: PodEvent) -> None:
        about = {"apiVersion": POD.api_version, "kind": POD.kind, "metadata": pod["metadata"]}
        record_event(self._cluster, about, event.kind, event.reason, event.message, SOURCE, event.path)
