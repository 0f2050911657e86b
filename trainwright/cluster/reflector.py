"""A reflector, as in client-go: lists a kind, watches from there, resumes lost connections, and relists expired versions.

Three nested loops: one connection (`Cluster.watch`), one list and the watches after it (`_until_expired`), until stopped (`run`).
`SharedWatches` shares one reflector among the subscribers of a process: a thousand of them need one connection. It starts with the
first subscription, and is stopped with the last.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Protocol, Unpack

from trainwright.api.errors import ApiError, Expired, Forbidden, ServiceUnavailable, Unauthorized
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.backoff import Backoff
from trainwright.cluster.protocol import Cluster, Listing, ListOptions, WatchEvent, WatchOptions

Handler = Callable[[str, Obj], None]
"""`(ADDED | MODIFIED | DELETED, object)`. Called in the reflector's thread; must not change the object.

An error of a handler is logged and concerns this change alone: the watch goes on.
"""

CONNECTION_SECONDS = 300
MIN_CONNECTION_SECONDS = 1.0
"""A shorter connection without events is followed by a backoff: some servers and proxies close connections at once."""
BACKOFF = Backoff(0.5, 30.0)
MAX_RETRY_AFTER_SECONDS = 60.0
"""Upper limit for a Retry-After of the server, so that the end of a job is noticed in time."""
POLL_SECONDS = 5.0
log = logging.getLogger(__name__)


class ListerWatcher(Protocol):
    """The methods of `Cluster` that a reflector needs."""

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
    """Keeps `known` (by namespace and name) in sync with the cluster, and calls a handler for every difference."""

    def __init__(
        self,
        cluster: ListerWatcher,
        kind: Kind,
        namespace: str | None = None,
        *,
        handler: Handler,
        label_selector: str = "",
        field_selector: str = "",
        stop: threading.Event | None = None,
        connection_seconds: int = CONNECTION_SECONDS,
        transform: Callable[[Obj], Obj] = lambda obj: obj,
    ):
        self.known: dict[tuple[str, str], Obj] = {}
        self.synced = threading.Event()
        """Set after the first list; `known` is complete from then on."""
        self.failure: tuple[float, ApiError] | None = None
        """When the current series of errors began (monotonic clock), and the latest error; None after a success."""
        self.denied_since: float | None = None
        """When the current series of 401 and 403 errors began; None after a success or another error."""
        self.stop = stop or threading.Event()
        self._cluster, self._kind, self._namespace = cluster, kind, namespace
        self._labels, self._fields = label_selector, field_selector
        self._handler, self._transform = handler, transform
        self._connection_seconds = connection_seconds
        self._failures = 0
        self._thread: threading.Thread | None = None

    def start(self) -> threading.Thread:
        """Run in a daemon thread; after `stop` is set it ends with the next event, or with its connection."""
        self._thread = threading.Thread(target=self.run, name=f"reflector-{self._kind.plural}", daemon=True)
        self._thread.start()
        return self._thread

    def problems(self, failing_seconds: float = 60.0) -> list[str]:
        """Why changes do not arrive: the thread does not run, or all requests have failed for so many seconds."""
        if self._thread is None or not self._thread.is_alive():
            return [f"the watch of {self._kind.plural} {'has ended' if self._thread else 'has not started'}"]
        failure = self.failure
        if failure is not None and time.monotonic() - failure[0] > failing_seconds:
            return [f"{self._kind.plural} cannot be watched: {failure[1].message}"]
        return []

    def run(self) -> None:
        """Run until `stop` is set; every failure is retried with exponential backoff and jitter."""
        while not self.stop.is_set():
            try:
                self._until_expired()
            except Expired:  # the version is too old to watch from: list again
                log.debug("event=watch_expired kind=%s", self._kind.kind)
                self._pause()
            except ApiError as error:
                if self.stop.is_set():  # the connection, or its files, may end before the thread
                    return
                log.warning("event=watch_failed kind=%s error=%s", self._kind.kind, error.message)
                self._fail(error)
            except Exception as error:  # of what is below the cluster, such as a full disk: the watch must not end with it
                log.exception("event=watch_broken kind=%s", self._kind.kind)
                self._fail(ServiceUnavailable(f"{type(error).__name__}: {error}"))

    def _fail(self, error: ApiError) -> None:
        """Note the error, and wait."""
        now = time.monotonic()
        self.failure = (self.failure[0] if self.failure else now, error)
        self.denied_since = (self.denied_since or now) if isinstance(error, Forbidden | Unauthorized) else None
        self._failures = max(self._failures, 1)
        self._pause(error.retry_after)

    def _pause(self, seconds: float | None = None) -> None:
        """Wait for the server's Retry-After, else for the backoff, which grows until a request succeeds."""
        self.stop.wait(min(seconds or BACKOFF.pause(self._failures), MAX_RETRY_AFTER_SECONDS))
        self._failures += 1

    def _until_expired(self) -> None:
        """List once, then watch and resume from the last version seen, until it expires."""
        version = self._list()
        while not self.stop.is_set():
            try:
                version = self._watch_once(version)
            except Forbidden:
                self.stop.wait(POLL_SECONDS)  # may list but not watch: poll
                return

    def _list(self) -> str:
        """List and apply the differences; returns the version. The list itself is not kept, only transformed objects."""
        listing = self._cluster.list(self._kind, self._namespace, label_selector=self._labels, field_selector=self._fields)
        self.failure = self.denied_since = None
        self._replace(listing.items)
        self.synced.set()
        return listing.resource_version

    def _watch_once(self, version: str) -> str:
        events = self._cluster.watch(
            self._kind,
            self._namespace,
            resource_version=version,
            label_selector=self._labels,
            field_selector=self._fields,
            timeout_seconds=self._connection_seconds,
        )
        started, is_idle = time.monotonic(), True
        try:
            for event in events:
                if self.stop.is_set():
                    return version
                version = event.resource_version or version
                if event.type != "BOOKMARK":
                    is_idle = False
                    key = (namespace_of(event.object), name_of(event.object))
                    if event.type == "DELETED":
                        self.known.pop(key, None)
                    else:
                        self.known[key] = self._transform(event.object)
                    self._notify(event.type, event.object)
        finally:
            useful = not is_idle or time.monotonic() - started >= MIN_CONNECTION_SECONDS
            if useful:
                self._failures = 0
        if not useful:
            self._pause()
        return version

    def _replace(self, items: list[Obj]) -> None:
        """Replace `known` with a new list; missing objects are reported as deleted."""
        fresh = {(namespace_of(item), name_of(item)): item for item in items}
        for key in [key for key in self.known if key not in fresh]:
            self._notify("DELETED", self.known.pop(key))
        for key, item in fresh.items():
            old = self.known.get(key)
            if old is None or old["metadata"].get("resourceVersion") != item["metadata"].get("resourceVersion"):
                self.known[key] = self._transform(item)
                self._notify("ADDED" if old is None else "MODIFIED", item)

    def _notify(self, event: str, obj: Obj) -> None:
        try:
            self._handler(event, obj)
        except Exception:  # one object must not end the watch for all others
            where = f"{namespace_of(obj)}/{name_of(obj)}"
            log.exception("event=change_not_handled kind=%s object=%s change=%s", self._kind.kind, where, event)


OnChange = Callable[[str, Obj], None]
"""`(ADDED | MODIFIED | DELETED, object)`. Called in the watch's thread, under its lock: must be quick and must not raise."""


@dataclass(frozen=True)
class Watched:
    """What a watch lists: the objects of a namespace, or those that the selectors choose.

    `connection_seconds`: a watch may outlive its last subscription by so long.
    """

    kind: Kind
    namespace: str
    label_selector: str = ""
    field_selector: str = ""
    connection_seconds: int = CONNECTION_SECONDS


@dataclass(frozen=True, eq=False, slots=True)
class Subscription:
    """A subscription to one object, or to a group of them."""

    watch: _Watch
    group: str
    on_change: OnChange

    @property
    def reflector(self) -> Reflector:
        """The reflector, for its `failure` and `synced`."""
        return self.watch.reflector

    @property
    def cluster(self) -> Cluster:
        return self.watch.cluster

    def is_absent(self) -> bool:
        """Whether the object, or the whole group, is known not to exist."""
        return self.reflector.synced.is_set() and not self.watch.known.get(self.group)


class SharedWatches:
    """The watches of a process. `key` identifies a cluster, for instance by the name of a connection.

    `transform` trims each object before it is stored and published, to bound memory. `group_of` an object is what it is subscribed
    to by: its name.
    """

    def __init__(self, transform: Callable[[Obj], Obj] = lambda obj: obj, group_of: Callable[[Obj], str] = name_of) -> None:
        self._transform, self._group_of = transform, group_of
        self._watches: dict[Hashable, _Watch] = {}
        self._lock = threading.Lock()

    def subscribe(
        self, key: Hashable, connect: Callable[[], Cluster], watched: Watched, group: str, on_change: OnChange
    ) -> Subscription:
        """Subscribe to a group until `unsubscribe`. `on_change` gets the current state of its objects once known, then every change.

        `connect` is called for the first subscription of a cluster to what is watched; its errors are raised here.
        """
        with self._lock:
            watch = self._watches.get((key, watched))
            if watch is None:
                watch = self._watches[key, watched] = _Watch(connect(), watched, self._transform, self._group_of)
            subscription = Subscription(watch, group, on_change)
            watch.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; the last one stops the watch. Idempotent."""
        with self._lock:
            if subscription.watch.remove(subscription):
                self._watches = {
                    watch_key: watch for watch_key, watch in self._watches.items() if watch is not subscription.watch
                }


class _Watch:
    """One reflector and its subscriptions. `known` are the objects by group and name."""

    def __init__(
        self, cluster: Cluster, watched: Watched, transform: Callable[[Obj], Obj], group_of: Callable[[Obj], str]
    ) -> None:
        self.cluster, self._group_of = cluster, group_of
        self.known: dict[str, dict[str, Obj]] = {}
        self.reflector = Reflector(
            TransformingLister(cluster, transform),
            watched.kind,
            watched.namespace,
            handler=self._notify,
            label_selector=watched.label_selector,
            field_selector=watched.field_selector,
            connection_seconds=watched.connection_seconds,
        )
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._lock = threading.Lock()
        self.reflector.start()

    def add(self, subscription: Subscription) -> None:
        """Add a subscription. Takes the lock of change notifications, so that no older state is published after a newer one."""
        with self._lock:
            self._subscriptions.setdefault(subscription.group, set()).add(subscription)
            for obj in self.known.get(subscription.group, {}).values():
                subscription.on_change("ADDED", obj)

    def remove(self, subscription: Subscription) -> bool:
        """Remove a subscription; returns whether it was the last, which stops the reflector."""
        with self._lock:
            if subscriptions := self._subscriptions.get(subscription.group):
                subscriptions.discard(subscription)
                if not subscriptions:
                    del self._subscriptions[subscription.group]
            if not self._subscriptions:
                self.reflector.stop.set()
            return not self._subscriptions

    def _notify(self, event: str, obj: Obj) -> None:
        group, name = self._group_of(obj), name_of(obj)
        with self._lock:
            objects = self.known.setdefault(group, {})
            if event == "DELETED":
                objects.pop(name, None)
            else:
                objects[name] = obj
            if not objects:
                del self.known[group]
            for subscription in tuple(self._subscriptions.get(group, ())):
                subscription.on_change(event, obj)


class TransformingLister:
    """Implements `ListerWatcher` on `cluster`; every object is passed through `transform` as it arrives, to bound memory."""

    def __init__(self, cluster: Cluster, transform: Callable[[Obj], Obj]):
        self._cluster, self._transform = cluster, transform

    def list(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Listing:
        """List page by page if the cluster supports it."""
        pages = getattr(self._cluster, "pages", None)
        if pages is None:
            listing = self._cluster.list(kind, namespace, **options)
            return Listing([self._transform(item) for item in listing.items], listing.resource_version)
        items: list[Obj] = []
        version = ""
        for page in pages(kind, namespace, **options):
            items.extend(map(self._transform, page.items))
            page.items.clear()  # it would stay in memory while the next one is read
            version = version or page.resource_version
        return Listing(items, version)

    def watch(self, kind: Kind, namespace: str | None = None, **options: Unpack[WatchOptions]) -> Iterator[WatchEvent]:
        """Watch; bookmarks are not transformed."""
        for event in self._cluster.watch(kind, namespace, **options):
            yield event if event.type == "BOOKMARK" else WatchEvent(event.type, self._transform(event.object))
