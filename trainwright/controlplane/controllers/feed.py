"""What happens to the objects of one kind in the store beside us, told to those who follow it.

The same promise as a reflector's, without a thread of its own: everything that is there, then every change, once each and in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainwright.api.kinds import Kind
from trainwright.cluster.reflector import Handler
from trainwright.controlplane.apiserver.events import Subscription
from trainwright.controlplane.apiserver.records import Key, Record
from trainwright.controlplane.apiserver.rest import ResourceServer


class Feed:
    """Not for two threads at a time. `wake` is called, from any thread, when there is something to deliver."""

    def __init__(self, server: ResourceServer, kind: Kind, handlers: Iterable[Handler], wake: Callable[[Feed], None]):
        self._server, self._kind, self._handlers, self._wake = server, kind, tuple(handlers), wake
        # The store's own records: what is known here takes no room of its own.
        self._known: dict[Key, Record] = {}
        self._subscription = self._subscribed()

    def deliver(self) -> None:
        """Tell the handlers what has come; begin anew where more came than could wait."""
        for event in self._subscription.take():
            if event.left is None:
                self._known.pop(event.key, None)
            else:
                self._known[event.key] = event.left
            self._tell(event.type, event.record)
        if self._subscription.overflowed:
            self.close()
            self._subscription = self._subscribed()

    def close(self) -> None:
        self._server.store.unsubscribe(self._subscription)

    def _subscribed(self) -> Subscription:
        """A new subscription, once what is different from what was known has been told."""
        subscription = self._server.subscribe(self._kind, None, None, lambda: self._wake(self))
        fresh = {record.key: record for record in subscription.initial}
        subscription.initial = []
        for key in self._known.keys() - fresh.keys():
            self._tell("DELETED", self._known.pop(key))
        for key, record in fresh.items():
            before = self._known.get(key)
            if before is None or before.revision != record.revision:
                self._known[key] = record
                self._tell("ADDED" if before is None else "MODIFIED", record)
        return subscription

    def _tell(self, change: str, record: Record) -> None:
        for handle in self._handlers:
            handle(change, record.object)
