"""Runs all controllers of an embedded control plane in one thread, in the same process as the store.

Separate threads would only contend for the interpreter. Each iteration delivers changes, reconciles keys for a short time, and
persists their writes together. Changes have the guarantees of a reflector: all existing objects, then every change exactly once and in
order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from trainwright.api.kinds import Kind
from trainwright.backoff import Backoff
from trainwright.cluster.reflector import Handler
from trainwright.controlplane.apiserver.storage.events import Subscription
from trainwright.controlplane.apiserver.storage.object_table import Key as ObjectKey
from trainwright.controlplane.apiserver.storage.object_table import Record
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.api_errors import StorageFailed
from trainwright.controlplane.controllers.controller import Controller, ReconcileResult
from trainwright.controlplane.controllers.queue import LONGEST_WAIT, Key
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.controlplane.life_signs import LifeSign

TURN_SECONDS = 0.01
"""Time to reconcile before writes are persisted. Only then do others, and the controllers themselves, see them."""
_BACKOFF = Backoff(0.1, 30.0)
"""After an error of the loop itself; those of a handler or a reconcile concern one object."""
log = logging.getLogger(__name__)


class ControllerLoop:
    """Runs controllers of `cluster`, which uses `server`. `event_handlers` get the same events as the controllers."""

    def __init__(
        self,
        server: ResourceServer,
        cluster: EmbeddedCluster,
        controllers: Sequence[Controller],
        event_handlers: Mapping[Kind, Handler] | None = None,
    ):
        self._server, self._cluster, self._controllers = server, cluster, tuple(controllers)
        self._event_handlers = event_handlers or {}
        self._stop, self._woken = threading.Event(), threading.Event()
        self._changed: deque[StoreInformer] = deque()
        self._next_index = 0
        self._thread = threading.Thread(target=self._run, name="controllers", daemon=True)
        self._sign = LifeSign(self._thread)

    def start(self) -> None:
        """Start a daemon thread."""
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Stop after the current key, and wait up to `seconds`."""
        self._stop.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def problems(self) -> list[str]:
        """Why nothing is reconciled: the thread has ended, or does not get done with its turn."""
        return self._sign.problems()

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                self._reconcile_until_stopped()
            except Exception:  # such as no memory: all objects are read again
                failures = 1 if time.monotonic() - started > _BACKOFF.longest else failures + 1
                log.exception("event=controllers_failed failures=%d", failures)
                self._stop.wait(_BACKOFF.pause(failures))

    def _reconcile_until_stopped(self) -> None:
        self._changed.clear()
        informers = [StoreInformer(self._server, kind, handlers, self._wake) for kind, handlers in self._handlers().items()]
        try:
            while not self._stop.is_set():
                self._woken.clear()
                with self._sign.turn():
                    while self._changed:
                        self._changed.popleft().deliver()
                    is_busy = self._process_some()
                if not is_busy:
                    waits = [each.queue.seconds_to_next() for each in self._controllers]
                    self._woken.wait(min((LONGEST_WAIT, *(seconds for seconds in waits if seconds is not None))))
        finally:
            for informer in informers:
                informer.close()

    def _handlers(self) -> dict[Kind, list[Handler]]:
        handlers: dict[Kind, list[Handler]] = {}
        for controller in self._controllers:
            for kind, handler in controller.handlers().items():
                handlers.setdefault(kind, []).append(handler)
        for kind, handler in self._event_handlers.items():
            handlers.setdefault(kind, []).append(handler)
        return handlers

    def _wake(self, informer: StoreInformer) -> None:
        self._changed.append(informer)
        self._woken.set()

    def _process_some(self) -> bool:
        """Reconcile keys of all controllers in turn for TURN_SECONDS, and persist their writes. Returns whether there were any."""
        until = time.monotonic() + TURN_SECONDS
        done: list[tuple[Controller, ReconcileResult]] = []
        try:
            with self._cluster.together():
                while (next_one := self._next()) is not None:
                    controller, key = next_one
                    done.append((controller, controller.process(key)))
                    if time.monotonic() >= until:
                        break  # the writes are persisted now: others see them only then
        except StorageFailed as error:  # nothing of this turn was stored: all its keys are retried
            log.warning("event=reconcile_not_persisted keys=%d error=%s", len(done), error.message)
            done = [(controller, result.as_error()) for controller, result in done]
        for controller, result in done:
            controller.finish(result)
        return bool(done)

    def _next(self) -> tuple[Controller, Key] | None:
        for _ in self._controllers:
            controller = self._controllers[self._next_index]
            self._next_index = (self._next_index + 1) % len(self._controllers)
            key = controller.queue.poll()
            if key is not None:
                return controller, key
        return None


class StoreInformer:
    """Not thread-safe. `wake` is called, from any thread, when there are events to deliver."""

    def __init__(self, server: ResourceServer, kind: Kind, handlers: Iterable[Handler], wake: Callable[[StoreInformer], None]):
        self._server, self._kind, self._handlers, self._wake = server, kind, tuple(handlers), wake
        # References to the store's records, so this needs little memory.
        self._known: dict[ObjectKey, Record] = {}
        self._subscription = self._subscribe()

    def deliver(self) -> None:
        """Pass pending events to the handlers. Relists after an overflow."""
        for event in self._subscription.take():
            if event.current is None:
                self._known.pop(event.key, None)
            else:
                self._known[event.key] = event.current
            self._notify(event.type, event.record)
        if self._subscription.overflowed:
            self.close()
            self._subscription = self._subscribe()

    def close(self) -> None:
        self._server.store.unsubscribe(self._subscription)

    def _subscribe(self) -> Subscription:
        """Return a new subscription, after passing differences from the known state to the handlers."""
        subscription = self._server.subscribe(self._kind, None, None, lambda: self._wake(self))
        fresh = {record.key: record for record in subscription.initial}
        subscription.initial = []
        for key in self._known.keys() - fresh.keys():
            self._notify("DELETED", self._known.pop(key))
        for key, record in fresh.items():
            before = self._known.get(key)
            if before is None or before.revision != record.revision:
                self._known[key] = record
                self._notify("ADDED" if before is None else "MODIFIED", record)
        return subscription

    def _notify(self, change: str, record: Record) -> None:
        for handle in self._handlers:
            try:
                handle(change, record.object)
            except Exception:  # one broken object must not stop the controllers for all others
                log.exception("event=handler_failed kind=%s key=%s/%s", self._kind.kind, *record.key)
