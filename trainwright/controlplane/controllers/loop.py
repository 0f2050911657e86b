"""All controllers of an embedded control plane in one thread, beside the store that they work on.

Threads of their own would only take the interpreter from each other in the midst of every write. Turn by turn: what has changed is
told, keys are reconciled for a moment, and what that wrote goes to disk together.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence

from trainwright.api.kinds import Kind
from trainwright.cluster.reflector import Handler
from trainwright.controlplane.apiserver.failures import StorageFailed
from trainwright.controlplane.apiserver.rest import ResourceServer
from trainwright.controlplane.controllers.controller import Controller, Outcome
from trainwright.controlplane.controllers.feed import Feed
from trainwright.controlplane.controllers.queue import Key
from trainwright.controlplane.embedded import EmbeddedCluster

TURN_SECONDS = 0.01
"""Of reconciling between two visits to the disk. What was written is seen by others after that, and by the controllers too."""
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
                if not self._work_on_some():
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

    def _work_on_some(self) -> bool:
        """Reconcile keys for a moment, of each controller in turn, and bring what they wrote to disk. Whether there were any."""
        until = time.monotonic() + TURN_SECONDS
        done: list[tuple[Controller, Outcome]] = []
        try:
            with self._cluster.together():
                while (next_one := self._next()) is not None:
                    controller, key = next_one
                    done.append((controller, controller.work(key)))
                    if time.monotonic() >= until:
                        break
        except StorageFailed as error:
            log.warning("event=reconciled_in_vain keys=%d error=%s", len(done), error.message)
            done = [(controller, outcome.in_vain()) for controller, outcome in done]
        for controller, outcome in done:
            controller.settle(outcome)
        return bool(done)

    def _next(self) -> tuple[Controller, Key] | None:
        for _ in self._controllers:
            controller = self._controllers[self._turn]
            self._turn = (self._turn + 1) % len(self._controllers)
            key = controller.queue.poll()
            if key is not None:
                return controller, key
        return None

    def _seconds_to_next(self) -> float | None:
        waits = [seconds for controller in self._controllers if (seconds := controller.queue.seconds_to_next()) is not None]
        return min(waits, default=None)
