"""The endpoints of logs: the containers of a TrainJob, the end of a log, what follows it, and the whole text."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from itertools import chain

import orjson
from starlette.responses import StreamingResponse

from trainwright.api.errors import BadRequest, NotFound, TooManyRequests
from trainwright.api.integers import parse_count
from trainwright.api.kinds import POD, TRAINJOB
from trainwright.api.objects import Obj, uid_of
from trainwright.cluster.protocol import LogOptions
from trainwright.ui.call import Call, Endpoint, Json, Stream
from trainwright.ui.logs.log_lines import FollowedLog, Tail, container_state, line_of, log_containers, read_tail
from trainwright.ui.subscription import BEAT_SECONDS

TAIL_BYTES, MAX_TAIL_BYTES = 5_000_000, 20_000_000
"""Of a log with the times of its lines; the page asks for twice as many at a time, up to the maximum."""
MAX_VIEWS = 64
"""Each view has a thread."""
_MAX_READERS = 4
"""At once: each keeps what it has read in memory."""
_LOOK_SECONDS = 0.1
_LOG = "/logs/{namespace}/{pod}/{container}"


class LogEndpoints:
    """The endpoints of one server. Call `close` at the end."""

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._views = 0
        self._reading = threading.Semaphore(_MAX_READERS)
        self.routes: tuple[Endpoint | Stream, ...] = (
            Endpoint("GET", "/trainjobs/{namespace}/{name}/containers", show_containers),
            Endpoint("GET", f"{_LOG}/lines", self.show_lines),
            Endpoint("GET", f"{_LOG}/text", self.download),
            Stream(f"{_LOG}/stream", self.follow),
        )

    def close(self) -> None:
        """End all streams and downloads."""
        self._closed.set()

    def show_lines(self, call: Call) -> StreamingResponse:
        """Return the last `bytes` of a log: `lines`, each `[time, text]`, `cut` if there are lines before, and a `message`.

        Raises ValueError, ApiError.
        """
        pod, options = _run_of(call)
        has_ended = options["previous"] or container_state(pod, call.path["container"]).has_run_ended
        size = max(1, min(_number(call, "bytes", TAIL_BYTES), MAX_TAIL_BYTES))
        message = "the container was restarted after this run" if options["previous"] else ""
        try:
            with self._reading:
                tail = read_tail(call.session.cluster, call.path["pod"], call.namespace, size, options, has_ended=has_ended)
        except BadRequest as error:  # the container has not started, or its log was removed
            tail, message = Tail(deque(), is_cut=False), error.message
        return StreamingResponse(_document(tail, message), media_type="application/json")

    async def follow(self, call: Call) -> AsyncGenerator[Json, None]:
        """Yield the lines after the time `after` as they come, and the `partial` line that has not ended, until the log has `ended`.

        Raises ValueError, ApiError.
        """
        pod, options = await asyncio.to_thread(_run_of, call)
        if self._views >= MAX_VIEWS:
            raise TooManyRequests(f"{MAX_VIEWS} logs are followed, the limit; close some of them")
        log = FollowedLog(call.session.cluster, pod, call.path["container"], after=call.query.get("after", ""), size=TAIL_BYTES)
        self._views += 1
        if options["previous"]:
            log.has_ended = True
        else:
            threading.Thread(target=log.run, name=f"log-of-{call.path['pod']}", daemon=True).start()
        try:
            said, sent = 0.0, None
            while not self._closed.is_set():
                has_ended = log.has_ended
                lines, partial = log.take()
                if lines or (partial, has_ended) != sent:
                    said, sent = time.monotonic(), (partial, has_ended)
                    yield {"type": "log", "lines": lines, "partial": partial, "ended": has_ended}
                elif time.monotonic() - said > BEAT_SECONDS:
                    said = time.monotonic()
                    yield {"type": "beat"}
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            log.close()
            self._views -= 1

    def download(self, call: Call) -> StreamingResponse:
        """Return the whole log as the container wrote it; with `times`, each line with its time. Raises ValueError, ApiError."""
        _, options = _run_of(call)
        options["timestamps"] = bool(call.query.get("times"))
        chunks = call.session.cluster.logs(call.path["pod"], call.namespace, **options)
        first = next(chunks, b"")  # an error is still an answer here
        return StreamingResponse(self._until_closed(chain([first], chunks)), media_type="text/plain; charset=utf-8")

    def _until_closed(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if self._closed.is_set():  # the server stops, and would wait for a log without end
                return
            yield chunk


def show_containers(call: Call) -> Json:
    """Return the containers of a TrainJob whose logs can be read. Raises NotFound, ApiError."""
    cluster = call.session.cluster
    trainjob = cluster.get(TRAINJOB, call.path["name"], call.namespace)
    return {"containers": log_containers(cluster, trainjob)}


def _run_of(call: Call) -> tuple[Obj, LogOptions]:
    """Return the pod and the run that a call names, by the `uid` of the pod and the restarts before the run.

    Raises ValueError, NotFound, ApiError.
    """
    uid, container = call.query.get("uid", ""), call.path["container"]
    if not uid:
        raise ValueError("uid: expected the UID of the pod")
    restart = _number(call, "restart", 0)
    pod = call.session.cluster.get(POD, call.path["pod"], call.namespace)
    if uid_of(pod) != uid:
        raise NotFound(f"the pod {call.path['pod']} was deleted, and another one has its name")
    names = [str(each["name"]) for field in ("containers", "initContainers") for each in pod["spec"].get(field) or []]
    if container not in names:
        raise NotFound(f"the pod {call.path['pod']} has no container {container[:80]!r}; it has {', '.join(names)}")
    restarts = container_state(pod, container).restarts
    missed = restarts - restart
    if missed < 0:
        raise NotFound(f"the container {container} has no run {restart}; its last one is {restarts}")
    if missed > 1:
        raise NotFound("the node has not kept this log: the container restarted again")
    return pod, {"container": container, "previous": missed == 1}


def _number(call: Call, name: str, default: int) -> int:
    given = call.query.get(name, "")
    number = parse_count(given) if given else default
    if number is None:
        raise ValueError(f"{name}: {given[:40]!r} is not a number")
    return number


def _document(tail: Tail, message: str) -> Iterator[bytes]:
    """Yield the JSON of a tail in small parts: the whole would take several times the memory of its lines."""
    yield orjson.dumps({"cut": tail.is_cut, "message": message})[:-1] + b',"lines":['
    separator = b""
    while tail.lines:
        part = [line for line in (line_of(tail.lines.popleft()) for _ in range(min(1000, len(tail.lines)))) if line]
        if part:
            yield separator + orjson.dumps(part)[1:-1]
            separator = b","
    yield b"]}"
