"""The endpoints of logs: containers of a TrainJob, windows of lines, searches, changes, and the whole text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator

from starlette.responses import StreamingResponse

from trainwright.api.integers import parse_count
from trainwright.api.kinds import TRAINJOB
from trainwright.text.terminal import printable
from trainwright.ui.call import Call, Endpoint, Json, Stream
from trainwright.ui.logs.log_containers import log_containers
from trainwright.ui.logs.search import MAX_HITS, compiled, search_backward, search_forward
from trainwright.ui.logs.spool import LogKey, LogSpool
from trainwright.ui.logs.spools import LogSpools
from trainwright.ui.subscription import BEAT_SECONDS

MAX_LINES = 2000
_FIRST_LINES_SECONDS = 0.3
"""How long the first answer waits for lines, so that a page needs no second one to show something."""
_LOOK_SECONDS = 0.2
_LOG = "/logs/{namespace}/{pod}/{container}"
_NUMBERS = 2**53
"""Line numbers are below what a browser represents exactly."""


class LogEndpoints:
    """The endpoints of one server, which share its spools. Call `close` at the end."""

    def __init__(self, spools: LogSpools | None = None):
        self._spools = spools or LogSpools()
        self.routes: tuple[Endpoint | Stream, ...] = (
            Endpoint("GET", "/trainjobs/{namespace}/{name}/containers", show_containers),
            Endpoint("GET", f"{_LOG}/lines", self.show_lines),
            Endpoint("GET", f"{_LOG}/search", self.search),
            Endpoint("GET", f"{_LOG}/text", self.download),
            Stream(f"{_LOG}/stream", self.follow),
        )

    def close(self) -> None:
        """Close all logs, and with them the streams that follow them."""
        self._spools.close()

    def show_lines(self, call: Call) -> Json:
        """Return `count` lines from the line `from` on; with `last`, the last `count` lines. There may be fewer, see `total`.

        With `again`, a log that could not be read is read anew. Raises ValueError, TooManyRequests.
        """
        if call.query.get("again"):
            self._spools.forget(_key(call))
        spool = self._spool(call)
        count = _number(call, "count", 200, most=MAX_LINES)
        if spool.version == 0:
            spool.wait(0, _FIRST_LINES_SECONDS)
        window = spool.window(-count if call.query.get("last") else _number(call, "from", 0), count)
        return {
            **_state(spool),
            "from": window.start,
            "lines": [_shown(text) for text in window.texts],
            "times": [stamp.decode("ascii", "replace") for stamp in window.stamps],
        }

    def search(self, call: Call) -> Json:
        """Return a portion of the lines that have a text, see `Hits`; forward from `from`, or backward from before it.

        `text` is a text, or with `expression` a regular expression; `case` makes it case-sensitive. Raises ValueError.
        """
        spool, is_backward = self._spool(call), bool(call.query.get("backward"))
        pattern = compiled(call.query.get("text", ""), bool(call.query.get("expression")), bool(call.query.get("case")))
        start = _number(call, "from", _NUMBERS if is_backward else 0)
        limit = max(1, _number(call, "limit", MAX_HITS, most=MAX_HITS))
        total = spool.total
        if is_backward:
            hits = search_backward(spool.texts, pattern, start, limit=limit)
        else:
            hits = search_forward(spool.texts, pattern, start, min(total, _number(call, "until", _NUMBERS)), limit=limit)
        return {**hits, "total": total}

    def download(self, call: Call) -> StreamingResponse:
        """Return the lines that have been read so far as text; with `times`, each with its timestamp."""
        spool, with_times = self._spool(call), bool(call.query.get("times"))
        return StreamingResponse(_text(spool, with_times), media_type="text/plain; charset=utf-8")

    async def follow(self, call: Call) -> AsyncGenerator[Json, None]:
        """Yield the number of lines and the state of a log whenever they change, until it is closed."""
        spool, version, said = await asyncio.to_thread(self._spool, call), -1, time.monotonic()
        while not spool.is_closed:
            spool.touch()
            if spool.version != version:
                version, said = spool.version, time.monotonic()
                yield {"type": "log", **_state(spool)}
            elif time.monotonic() - said > BEAT_SECONDS:
                said = time.monotonic()
                yield {"type": "beat"}
            await asyncio.sleep(_LOOK_SECONDS)

    def _spool(self, call: Call) -> LogSpool:
        return self._spools.open(call.session.cluster, _key(call))


def show_containers(call: Call) -> Json:
    """Return the containers of a TrainJob whose logs can be read. Raises NotFound, ApiError."""
    cluster = call.session.cluster
    trainjob = cluster.get(TRAINJOB, call.path["name"], call.namespace)
    return {"containers": log_containers(cluster, trainjob)}


def _key(call: Call) -> LogKey:
    uid = call.query.get("uid", "")
    if not uid:
        raise ValueError("uid: expected the UID of the pod")
    restart = _number(call, "restart", 0)
    return LogKey(call.session.key, call.namespace, call.path["pod"], uid, call.path["container"], restart)


def _number(call: Call, name: str, default: int, *, most: int = _NUMBERS) -> int:
    given = call.query.get(name, "")
    if not given:
        return default
    number = parse_count(given)
    if number is None or number > _NUMBERS:
        raise ValueError(f"{name}: {given[:40]!r} is not a number from 0 to {_NUMBERS}")
    return min(number, most)


def _state(spool: LogSpool) -> Json:
    state, partial = spool.state, spool.partial
    return {
        "total": spool.total,
        "bytes": spool.texts.size,
        "state": state.name,
        "message": state.message,
        "ended": state.is_final,
        "partial": _shown(partial) if partial else None,
    }


def _shown(text: bytes) -> str:
    return printable(text.decode("utf-8", "replace"))


def _text(spool: LogSpool, with_times: bool) -> Iterator[bytes]:
    total, start = spool.total, 0
    while start < total and not spool.is_closed:
        spool.touch()
        window = spool.window(start, min(MAX_LINES, total - start))
        if not window.texts:
            return
        lines = window.texts
        if with_times:
            lines = [stamp + b" " + text for stamp, text in zip(window.stamps, window.texts, strict=True)]
        yield b"\n".join(lines) + b"\n"
        start += len(window.texts)
