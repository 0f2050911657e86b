"""The live rows of a namespace, or of all: one list and one watch, however many pages show them.

A watch that several pages share starts with its first reader, and stops a while after the last, so that a reload finds it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

from trainwright.api.errors import ServiceUnavailable
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.reflector import Reflector
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.call import Json
from trainwright.ui.jobs.row import JobRow, RuntimeNodes, row_of
from trainwright.ui.subscription import BEAT_SECONDS, Subscribers, Subscription

_LOOK_SECONDS, _FIRST_LOOK_SECONDS = 1.0, 0.05
"""Between looks at the state of the watch: after and before the first list."""
_LINGER_SECONDS = 60.0
K = TypeVar("K", bound=Hashable)


class JobFeed:
    """The rows of one connection and namespace; None for all namespaces."""

    def __init__(self, cluster: JobsClient, namespace: str | None):
        self._nodes = RuntimeNodes(cluster)
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str], JobRow] = {}
        self._subscribers = Subscribers()
        self._reflector = Reflector(cluster, TRAINJOB, namespace, handler=self._changed, transform=_nothing_but_version)
        self._reflector.start()

    @property
    def idle_seconds(self) -> float:
        return self._subscribers.idle_seconds

    def stop(self) -> None:
        self._reflector.stop.set()
        self._subscribers.close()

    def problem(self) -> Json | None:
        """Return why changes do not arrive, if so: the latest error of the watch."""
        failure = self._reflector.failure
        if failure is None:
            return None
        return {"reason": type(failure[1]).__name__, "message": failure[1].message}

    async def updates(self) -> AsyncGenerator[Json, None]:
        """Yield `rows` with all of them once listed, then `changes`; `problem` whenever the state of the watch has changed."""
        with self._subscribers.joined() as subscription:
            async for message in self._messages(subscription):
                yield message

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
                with self._lock:
                    found = {key: self._rows.get(key) for key in keys if isinstance(key, tuple)}
                gone = [list(key) for key, row in found.items() if row is None]
                yield {"type": "changes", "rows": [row for row in found.values() if row is not None], "gone": gone}
            elif quiet >= BEAT_SECONDS:
                quiet = 0.0
                yield {"type": "beat"}

    def _changed(self, event: str, trainjob: Obj) -> None:
        key = (namespace_of(trainjob), name_of(trainjob))
        row = None if event == "DELETED" else row_of(trainjob, self._nodes)
        with self._lock:
            if row is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = row
        self._subscribers.mark(key)


def _nothing_but_version(trainjob: Obj) -> Obj:
    """A reflector needs only the version of what it knows; rows are stored here."""
    metadata: dict[str, Any] = trainjob["metadata"]
    return {"metadata": {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion") if name in metadata}}


class SharedWatch(Protocol):
    """What several pages read, from its creation until it is stopped."""

    @property
    def idle_seconds(self) -> float:
        """How long nobody has read it."""
        ...

    def updates(self) -> AsyncGenerator[Json, None]:
        """Yield what is sent to the pages, until it is stopped."""
        ...

    def stop(self) -> None:
        """Stop watching, and end the updates of all readers."""
        ...


W = TypeVar("W", bound=SharedWatch)


class SharedWatches(Generic[K, W]):
    """The watches of a server by key, which has that of the credentials: pages of others never see them. Thread-safe.

    At most `limit` are open, and `refusal` is what further ones are answered with.
    """

    def __init__(self, limit: int, refusal: str):
        self._limit, self._refusal = limit, refusal
        self._lock = threading.Lock()
        self._open: dict[K, W] = {}
        self._is_closed = False

    def of(self, key: K, start: Callable[[], W]) -> W:
        """Return the watch of the key, which is started if it is not open. Raises ServiceUnavailable if too many are."""
        self.stop_idle()
        with self._lock:
            watch = self._open.get(key)
            if watch is None:
                if len(self._open) >= self._limit:
                    raise ServiceUnavailable(f"{self._refusal}; close some pages")
                watch = self._open[key] = start()
            if self._is_closed:
                watch.stop()
            return watch

    async def updates(self, key: K, start: Callable[[], W]) -> AsyncGenerator[Json, None]:
        """Yield the updates of the watch of the key."""
        watch = self.of(key, start)
        try:
            async with aclosing(watch.updates()) as updates:
                async for update in updates:
                    yield update
        finally:
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self.stop_idle)

    def stop_idle(self) -> None:
        """Stop the watches that nobody has read for a while."""
        with self._lock:
            for key in [key for key, watch in self._open.items() if watch.idle_seconds >= _LINGER_SECONDS]:
                self._open.pop(key).stop()

    def close(self) -> None:
        """Stop all watches, and end their updates."""
        with self._lock:
            self._is_closed = True
            watches = tuple(self._open.values())
        for watch in watches:
            watch.stop()
