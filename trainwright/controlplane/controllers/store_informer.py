"""Delivers the objects of one kind in the embedded store, and their changes, to handlers.

Same guarantees as a reflector, without its own thread: all existing objects, then every change exactly once and in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from trainwright.api.kinds import Kind
from trainwright.cluster.reflector import Handler
from trainwright.controlplane.apiserver.storage.events import Subscription
from trainwright.controlplane.apiserver.storage.object_table import Key, Record
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer

log = logging.getLogger(__name__)


class StoreInformer:
    """Not thread-safe. `wake` is called, from any thread, when there are events to deliver."""

    def __init__(self, server: ResourceServer, kind: Kind, handlers: Iterable[Handler], wake: Callable[[StoreInformer], None]):
        self._server, self._kind, self._handlers, self._wake = server, kind, tuple(handlers), wake
        # References to the store's records, so this needs little memory.
        self._known: dict[Key, Record] = {}
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
