"""All controllers of an embedded control plane in one thread, beside the store that they work on.

Threads of their own would only take the interpreter from each other in the midst of every write. Each key in turn: what has changed
is told, the next key is reconciled, and what that wrote goes to disk together.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence

from trainwright.api.kinds import Kind
from trainwright.cluster.reflector import Handler
from trainwright.controlplane.apiserver.rest import ResourceServer
from trainwright.controlplane.controllers.controller import Controller
from trainwright.controlplane.controllers.feed import Feed
from trainwright.controlplane.embedded import EmbeddedCluster

log = logging.getLogger(__name__)


class ControllerLoop:
    """Runs controllers that were made for `cluster`, which stands on `server`. `onlookers` are told what controllers are told."""

    def __init__(
        self,
        server: ResourceServer,
        cluster: EmbeddedCluster,
        controllers: Sequence[Controller],
        onlookers: Mapping[Kind, Handler] | None = None,
    ):
        self._server, self._cluster, self._controllers = server, cluster, tuple(controllers)
        self._onlookers = onlookers or {}
        self._stop, self._woken = threading.Event(), threading.Event()
        self._changed: deque[Feed] = deque()
        self._turn = 0
        self._thread = threading.Thread(target=self._run, name="controllers", daemon=True)

    def start(self) -> None:
        """Begin, in a daemon thread."""
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """End after the key in hand; waits for that."""
        self._stop.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        feeds = [Feed(self._server, kind, handlers, self._wake) for kind, handlers in self._followers().items()]
        try:
            while not self._stop.is_set():
                self._woken.clear()
                while self._changed:
                    self._changed.popleft().deliver()
                if not self._work_on_one():
                    self._woken.wait(self._seconds_to_next())
        except Exception:
            log.exception("event=controllers_crashed")
            raise
        finally:
            for feed in feeds:
                feed.close()

    def _followers(self) -> dict[Kind, list[Handler]]:
        handlers: dict[Kind, list[Handler]] = {}
        for controller in self._controllers:
            for kind, handler in controller.handlers().items():
                handlers.setdefault(kind, []).append(handler)
        for kind, handler in self._onlookers.items():
            handlers.setdefault(kind, []).append(handler)
        return handlers

    def _wake(self, feed: Feed) -> None:
        self._changed.append(feed)
        self._woken.set()

    def _work_on_one(self) -> bool:
        """Reconcile one key, of each controller in turn. Whether there was one."""
        for _ in self._controllers:
            controller = self._controllers[self._turn]
            self._turn = (self._turn + 1) % len(self._controllers)
            key = controller.queue.poll()
            if key is not None:
                controller.work(key, self._cluster.together)
                return True
        return False

    def _seconds_to_next(self) -> float | None:
        waits = [seconds for controller in self._controllers if (seconds := controller.queue.seconds_to_next()) is not None]
        return min(waits, default=None)
