"""Following a kind for ever: list, watch from there, resume when the connection ends, list again and diff when the version expired.

Three rings, each short: one connection (`Cluster.watch`), one list and the watches after it (`_until_expired`), for ever (`run`).
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from trainwright.api.errors import ApiError, Expired, Forbidden
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Listing, WatchEvent

Handler = Callable[[str, Obj], None]
"""`(ADDED | MODIFIED | DELETED, object)`. Called in the reflector's thread; must not change the object."""

CONNECTION_SECONDS = 300
SHORT_SECONDS = 1.0
"""A connection that ends sooner, without an event, is followed by a pause: some server or proxy closes them at once."""
FIRST_BACKOFF_SECONDS = 0.5
MOST_BACKOFF_SECONDS = 30.0
MOST_ASKED_SECONDS = 60.0
"""The longest Retry-After that is kept to: a job may end any minute."""
POLL_SECONDS = 5.0
log = logging.getLogger(__name__)


class Listed(Protocol):
    """What is asked of a cluster: a `Cluster`, or a part of one."""

    def list(
        self, kind: Kind, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> Listing: ...

    def watch(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
    ) -> Iterator[WatchEvent]: ...


class Reflector:
    """Keeps `known` (by namespace and name) equal to what the cluster has, and tells a handler of every difference."""

    def __init__(
        self,
        cluster: Listed,
        kind: Kind,
        namespace: str | None = None,
        *,
        handler: Handler,
        label_selector: str = "",
        field_selector: str = "",
        stop: threading.Event | None = None,
        connection_seconds: int = CONNECTION_SECONDS,
        remember: Callable[[Obj], Obj] = lambda obj: obj,
    ):
        self.known: dict[tuple[str, str], Obj] = {}
        self.synced = threading.Event()
        """Set after the first list: `known` is complete from then on."""
        self.failure: tuple[float, ApiError] | None = None
        """Since when (monotonic clock) the cluster has given nothing but errors, and the latest one."""
        self.stop = stop or threading.Event()
        self._cluster, self._kind, self._namespace = cluster, kind, namespace
        self._labels, self._fields = label_selector, field_selector
        self._handler, self._remember = handler, remember
        self._connection_seconds = connection_seconds
        self._backoff = 0.0

    def start(self) -> threading.Thread:
        """Run in a daemon thread of its own; after `stop` is set it ends with the next event, or with its connection."""
        thread = threading.Thread(target=self.run, name=f"reflector-{self._kind.plural}", daemon=True)
        thread.start()
        return thread

    def run(self) -> None:
        """Follow until `stop` is set; every failure is retried with a jittered back-off."""
        while not self.stop.is_set():
            try:
                self._until_expired()
            except Expired:
                log.debug("watch expired kind=%s; listing again", self._kind.kind)
                self._pause()
            except ApiError as error:
                self.failure = (self.failure[0] if self.failure else time.monotonic(), error)
                log.warning("watch failed kind=%s error=%s; trying again", self._kind.kind, error.message)
                self._backoff = max(self._backoff, FIRST_BACKOFF_SECONDS)
                self._pause(error.retry_after)

    def _pause(self, seconds: float | None = None) -> None:
        """Wait as long as the server asks, else for the back-off, which grows until something succeeds."""
        self.stop.wait(min(seconds or self._backoff * random.uniform(0.5, 1.5), MOST_ASKED_SECONDS))
        self._backoff = min(max(self._backoff * 2, FIRST_BACKOFF_SECONDS), MOST_BACKOFF_SECONDS)

    def _until_expired(self) -> None:
        """One list, then watches that resume from the last version seen, until that is no longer known."""
        version = self._listed()
        while not self.stop.is_set():
            try:
                version = self._one_connection(version)
            except Forbidden:
                self.stop.wait(POLL_SECONDS)  # may list but not watch: poll
                return

    def _listed(self) -> str:
        """The version of a fresh list, which is not held on to: of what is in it `remember` says how much is kept."""
        listing = self._cluster.list(self._kind, self._namespace, label_selector=self._labels, field_selector=self._fields)
        self.failure = None
        self._replace(listing.items)
        self.synced.set()
        return listing.resource_version

    def _one_connection(self, version: str) -> str:
        events = self._cluster.watch(
            self._kind,
            self._namespace,
            resource_version=version,
            label_selector=self._labels,
            field_selector=self._fields,
            timeout_seconds=self._connection_seconds,
        )
        began, quiet = time.monotonic(), True
        try:
            for event in events:
                if self.stop.is_set():
                    return version
                version = event.resource_version or version
                if event.type != "BOOKMARK":
                    quiet = False
                    self._changed(event.type, event.object)
        finally:
            useful = not quiet or time.monotonic() - began >= SHORT_SECONDS
            if useful:
                self._backoff = 0.0
        if not useful:
            self._pause()
        return version

    def _replace(self, items: list[Obj]) -> None:
        """Make `known` equal to a fresh list; objects that went away in between are reported as deleted."""
        fresh = {(namespace_of(item), name_of(item)): item for item in items}
        for key in [key for key in self.known if key not in fresh]:
            self._handler("DELETED", self.known.pop(key))
        for key, item in fresh.items():
            old = self.known.get(key)
            if old is None or old["metadata"].get("resourceVersion") != item["metadata"].get("resourceVersion"):
                self.known[key] = self._remember(item)
                self._handler("ADDED" if old is None else "MODIFIED", item)

    def _changed(self, event: str, obj: Obj) -> None:
        key = (namespace_of(obj), name_of(obj))
        if event == "DELETED":
            self.known.pop(key, None)
        else:
            self.known[key] = self._remember(obj)
        self._handler(event, obj)
