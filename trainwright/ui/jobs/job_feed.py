"""The live rows of a namespace, or of all: one list and one watch, however many pages show them.

A feed starts with its first subscriber, and stops a while after the last one has gone, so that a reload finds it running.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Hashable
from typing import Any

from trainwright.api.errors import ServiceUnavailable
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.reflector import Reflector
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.call import Json
from trainwright.ui.jobs.row import JobRow, row_of
from trainwright.ui.jobs.runtime_nodes import RuntimeNodes
from trainwright.ui.subscription import BEAT_SECONDS, Subscription

_LINGER_SECONDS = 60.0
_MAX_FEEDS = 100
_LOOK_SECONDS, _FIRST_LOOK_SECONDS = 1.0, 0.05
"""Between looks at the state of the watch: after and before the first list."""


class JobFeed:
    """The rows of one connection and namespace; None for all namespaces."""

    def __init__(self, cluster: JobsClient, namespace: str | None):
        self._nodes = RuntimeNodes(cluster)
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str], JobRow] = {}
        self._subscribers: set[Subscription] = set()
        self._idle_since = time.monotonic()
        self._reflector = Reflector(cluster, TRAINJOB, namespace, handler=self._changed, transform=_nothing_but_version)
        self._reflector.start()

    @property
    def idle_seconds(self) -> float:
        """How long it has had no subscribers; 0 with some."""
        with self._lock:
            return 0.0 if self._subscribers else time.monotonic() - self._idle_since

    def stop(self) -> None:
        self._reflector.stop.set()
        with self._lock:
            subscribers = tuple(self._subscribers)
        for subscriber in subscribers:
            subscriber.close()

    def problem(self) -> Json | None:
        """Return why changes do not arrive, if so: the latest error of the watch."""
        failure = self._reflector.failure
        if failure is None:
            return None
        return {"reason": type(failure[1]).__name__, "message": failure[1].message}

    async def updates(self) -> AsyncGenerator[Json, None]:
        """Yield `rows` with all of them once listed, then `changes`; `problem` whenever the state of the watch has changed."""
        subscription = Subscription()
        with self._lock:
            self._subscribers.add(subscription)
        try:
            async for message in self._messages(subscription):
                yield message
        finally:
            with self._lock:
                self._subscribers.discard(subscription)
                self._idle_since = time.monotonic()

    async def _messages(self, subscription: Subscription) -> AsyncGenerator[Json, None]:
        told: Json | None = None
        while not self._reflector.synced.is_set() and not self._reflector.stop.is_set():
            if (problem := self.problem()) != told:
                told = problem
                yield {"type": "problem", "problem": problem}
            await asyncio.sleep(_FIRST_LOOK_SECONDS)
        with self._lock:
            rows = list(self._rows.values())
        yield {"type": "rows", "rows": rows, "problem": self.problem()}
        told, quiet = self.problem(), 0.0
        async for keys in subscription.changes(beat_seconds=_LOOK_SECONDS):
            if (problem := self.problem()) != told:
                told = problem
                yield {"type": "problem", "problem": problem}
            quiet = 0.0 if keys else quiet + _LOOK_SECONDS
            if keys:
                yield self._changes(keys)
            elif quiet >= BEAT_SECONDS:
                quiet = 0.0
                yield {"type": "beat"}

    def _changes(self, keys: set[Hashable]) -> Json:
        with self._lock:
            found = {key: self._rows.get(key) for key in keys if isinstance(key, tuple)}
        gone = [list(key) for key, row in found.items() if row is None]
        return {"type": "changes", "rows": [row for row in found.values() if row is not None], "gone": gone}

    def _changed(self, event: str, trainjob: Obj) -> None:
        key = (namespace_of(trainjob), name_of(trainjob))
        row = None if event == "DELETED" else row_of(trainjob, self._nodes)
        with self._lock:
            if row is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = row
            subscribers = tuple(self._subscribers)
        for subscriber in subscribers:
            subscriber.mark(key)


class JobFeeds:
    """The feeds of a server, by the key of the credentials and the namespace. Thread-safe."""

    def __init__(self, *, linger_seconds: float = _LINGER_SECONDS, create: Callable[..., JobFeed] = JobFeed):
        self._linger_seconds, self._create = linger_seconds, create
        self._lock = threading.Lock()
        self._feeds: dict[tuple[str, str], JobFeed] = {}
        self._is_closed = False

    async def updates(self, key: str, cluster: JobsClient, namespace: str) -> AsyncGenerator[Json, None]:
        """Yield the updates of the feed of a namespace, "" for all, which starts if it does not run."""
        feed = self._of(key, cluster, namespace)
        try:
            async for update in feed.updates():
                yield update
        finally:
            asyncio.get_running_loop().call_later(self._linger_seconds, self._stop_idle)

    def _of(self, key: str, cluster: JobsClient, namespace: str) -> JobFeed:
        self._stop_idle()
        with self._lock:
            if (key, namespace) not in self._feeds:
                if len(self._feeds) >= _MAX_FEEDS:
                    raise ServiceUnavailable(f"{_MAX_FEEDS} lists of TrainJobs are open; close some pages")
                self._feeds[key, namespace] = self._create(cluster, namespace or None)
            feed = self._feeds[key, namespace]
            if self._is_closed:
                feed.stop()
            return feed

    def _stop_idle(self) -> None:
        with self._lock:
            idle = [key for key, feed in self._feeds.items() if feed.idle_seconds >= self._linger_seconds]
            for key in idle:
                self._feeds.pop(key).stop()

    def close(self) -> None:
        """Stop all feeds, and end their streams."""
        with self._lock:
            self._is_closed = True
            feeds = tuple(self._feeds.values())
        for feed in feeds:
            with contextlib.suppress(RuntimeError):  # an event loop that has ended
                feed.stop()


def _nothing_but_version(trainjob: Obj) -> Obj:
    """A reflector needs only the version of what it knows; rows are stored here."""
    metadata: dict[str, Any] = trainjob["metadata"]
    return {"metadata": {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion") if name in metadata}}
