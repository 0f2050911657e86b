"""Long-running responses: watches and followed logs.

They end when the client disconnects, at their timeout, or when the server stops.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import chain
from threading import get_ident

import anyio
import orjson
from anyio.to_thread import run_sync
from starlette.types import Receive, Scope, Send

from trainwright.api.errors import Expired
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.resources.registry import Target
from trainwright.controlplane.apiserver.storage.events import Subscription
from trainwright.controlplane.apiserver.storage.listing import Selection
from trainwright.controlplane.apiserver.storage.object_table import Record
from trainwright.controlplane.apiserver.streaming.websocket import OpenStreams
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.requests import IncludeObject, ListOptions
from trainwright.controlplane.apiserver.wire.responses import WRITE_BYTES
from trainwright.controlplane.apiserver.wire.tables import partial_metadata, table

log = logging.getLogger(__name__)

BOOKMARK_SECONDS = 60.0
DEFAULT_TIMEOUT = (1800.0, 3600.0)
"""Range in seconds of the random timeout of watches without timeoutSeconds; random to spread reconnects."""
PACE = (0.005, 0.25)
"""Minimum and maximum seconds between two writes to one watcher. Events in between are sent together."""
_PACE_EACH = 0.0005
"""Seconds that each watcher adds to the interval: a write takes a fifth of it, so watchers never use all CPU time."""
LOG_READERS = 64
"""Maximum threads waiting for logs; each is released at the next chunk or heartbeat."""


class WatchStream:
    """A watch response: the changes of a collection as JSON lines."""

    def __init__(
        self,
        server: ResourceServer,
        streams: OpenStreams,
        target: Target,
        options: ListOptions,
        view: str,
        include: IncludeObject,
        clock: Callable[[], datetime],
    ):
        self._server = server
        self._streams = streams
        self._target = target
        self._options = options
        self._view = view
        self._include = include
        self._clock = clock
        self._headed = True
        # Parsed before the response starts, so that invalid requests get their own status code.
        self._selection = Selection.parse(target.strategy, options.label_selector, options.field_selector)
        self._since = options.start_revision()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wake = asyncio.Event()
        awake = _waker(wake)
        try:
            subscription = self._server.subscribe(self._target.kind, self._target.namespace, self._since, awake)
        except Expired as error:
            await _start(send, "application/json")
            await _body(send, orjson.dumps({"type": "ERROR", "object": error.status()}) + b"\n", more=False)
            return
        end = subscription.close
        self._streams.add(end)
        try:
            await _start(send, "application/json")
            async with _until_gone(receive, wake) as gone:
                await self._pump(subscription, wake, gone, send)
            if not gone.is_set():
                await _body(send, b"", more=False)
        finally:
            self._streams.discard(end)
            self._server.store.unsubscribe(subscription)

    async def _pump(self, subscription: Subscription, wake: asyncio.Event, gone: asyncio.Event, send: Send) -> None:
        loop = asyncio.get_running_loop()
        seconds = self._options.timeout_seconds
        deadline = loop.time() + (seconds or random.uniform(*DEFAULT_TIMEOUT))
        bookmark = loop.time() + random.uniform(0.9, 1.0) * BOOKMARK_SECONDS
        wanted = [] if self._options.send_initial_events is False else subscription.initial
        initial = (self._selection.select(record) for record in wanted)
        await _send_lines(send, gone, (self._line("ADDED", record) for record in initial if record is not None))
        if self._options.send_initial_events and self._options.allow_bookmarks:
            await _body(send, self._bookmark(subscription, initial_end=True))
        while True:
            wake.clear()
            events = (self._selection.convert_event(event) for event in subscription.take())
            if await _send_lines(send, gone, (self._line(*seen) for seen in events if seen)):
                pace = min(max(len(self._streams) * _PACE_EACH, PACE[0]), PACE[1])
                await asyncio.sleep(random.uniform(0.5, 1.0) * pace)  # jitter
                continue  # more events may be queued
            now = loop.time()
            over = now >= deadline
            if self._options.allow_bookmarks and (over or now >= bookmark) and not subscription.overflowed:
                bookmark = now + BOOKMARK_SECONDS
                await _body(send, self._bookmark(subscription))
            if over or subscription.ended or gone.is_set():
                return
            timer = loop.call_later(max(min(deadline, bookmark) - now, 0), wake.set)
            await wake.wait()
            timer.cancel()

    def _line(self, change: str, record: Record) -> tuple[bytes, ...]:
        """Return the parts of a line; the object is that of the store, so that it is not copied for each watcher."""
        if not self._view:
            return b'{"type":"' + change.encode() + b'","object":', record.data, b"}\n"
        return orjson.dumps({"type": change, "object": self._seen(record.object)}), b"\n"

    def _bookmark(self, subscription: Subscription, *, initial_end: bool = False) -> bytes:
        metadata: Obj = {"resourceVersion": str(self._server.store.progress(subscription))}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        kind = self._target.kind
        obj: Obj = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return orjson.dumps({"type": "BOOKMARK", "object": self._seen(obj)}) + b"\n"

    def _seen(self, obj: Obj) -> Obj:
        """The object in the negotiated form."""
        if self._view != "Table":
            return partial_metadata(obj) if self._view else obj
        with_columns, self._headed = self._headed, False
        meta = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        return table(self._target.kind, [obj], meta, self._clock(), include=self._include, with_columns=with_columns)


class LogStream:
    """A log response: the chunks of a blocking iterator, read in a thread."""

    def __init__(self, streams: OpenStreams, first: bytes | None, chunks: Iterator[bytes], limiter: anyio.CapacityLimiter):
        self._streams = streams
        self._first = first
        self._chunks = chunks
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()

        def end() -> None:
            loop.call_soon_threadsafe(stopped.set)

        self._streams.add(end)
        try:
            await _start(send, "text/plain")
            async with _until_gone(receive) as gone:
                chunk = self._first
                while chunk is not None and not gone.is_set() and not stopped.is_set():
                    if chunk:
                        await _body(send, chunk)
                    chunk = await run_sync(next, self._chunks, None, limiter=self._limiter)
            if not gone.is_set():
                await _body(send, b"", more=False)
        finally:
            self._streams.discard(end)
            close = getattr(self._chunks, "close", None)
            if close:
                await run_sync(close, limiter=self._limiter)


async def _start(send: Send, content_type: str) -> None:
    headers = [(b"content-type", content_type.encode()), (b"cache-control", b"no-cache, private")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _send_lines(send: Send, gone: asyncio.Event, lines: Iterable[tuple[bytes, ...]]) -> bool:
    """Send lines, given in parts, some at a time: no more are held for a client that does not read. Returns whether there were any."""
    pending: list[memoryview] = []
    size, any_were = 0, False
    wholes = (memoryview(whole) for whole in chain.from_iterable(lines))
    for part in (whole[start : start + WRITE_BYTES] for whole in wholes for start in range(0, len(whole), WRITE_BYTES)):
        any_were = True
        if size + len(part) > WRITE_BYTES:
            await _body(send, b"".join(pending))
            pending.clear()
            size = 0
            await asyncio.sleep(0)  # sending to a client that is gone neither waits nor fails
            if gone.is_set():
                break
        pending.append(part)
        size += len(part)
    if pending:
        await _body(send, b"".join(pending))
    return any_were


async def _body(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


def _waker(wake: asyncio.Event) -> Callable[[], None]:
    """A callback that sets the event from any thread."""
    loop, home = asyncio.get_running_loop(), get_ident()

    def awake() -> None:
        if get_ident() == home:
            wake.set()
            return
        try:
            loop.call_soon_threadsafe(wake.set)
        except RuntimeError:
            log.debug("event=watch_loop_closed")  # the event loop is closed, and this stream with it

    return awake


@asynccontextmanager
async def _until_gone(receive: Receive, wake: asyncio.Event | None = None) -> AsyncIterator[asyncio.Event]:
    """Yields an event that is set, together with `wake`, when the client disconnects."""
    gone = asyncio.Event()

    async def listen() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()
        if wake is not None:
            wake.set()

    listener = asyncio.ensure_future(listen())
    try:
        yield gone
    finally:
        listener.cancel()
