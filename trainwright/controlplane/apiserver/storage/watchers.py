"""The subscriptions of each resource."""

from __future__ import annotations

import logging

from trainwright.controlplane.apiserver.storage.events import Event, Subscription

log = logging.getLogger(__name__)


class Watchers:
    """Subscriptions by resource. Not thread-safe: the store calls it under its lock."""

    def __init__(self, queue_size: int):
        self.queue_size = queue_size
        self._by_resource: dict[str, list[Subscription]] = {}

    def add(self, subscription: Subscription) -> None:
        self._by_resource.setdefault(subscription.resource, []).append(subscription)

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription; a no-op if it was removed before."""
        others = self._by_resource.get(subscription.resource, [])
        if subscription in others:
            others.remove(subscription)

    def remove_all(self) -> list[Subscription]:
        every = [subscription for group in self._by_resource.values() for subscription in group]
        self._by_resource.clear()
        return every

    def counts(self) -> dict[str, int]:
        return {resource: len(group) for resource, group in self._by_resource.items() if group}

    def notify(self, event: Event) -> None:
        """Send the event to matching subscriptions; remove those that overflowed."""
        listeners = self._by_resource.get(event.resource)
        if not listeners:
            return
        for subscription in listeners:
            if subscription.matches(event):
                subscription.push(event)
        if any(subscription.overflowed for subscription in listeners):
            self._by_resource[event.resource] = [subscription for subscription in listeners if not subscription.overflowed]
            log.warning("event=watcher_too_slow resource=%s queue=%d", event.resource, self.queue_size)
