"""A cluster with one pod, whose state and log a test scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from factories import pod

from trainwright.api.errors import BadRequest, ServiceUnavailable

CHUNK = 16 * 1024


def line(number: int, text: str = "") -> bytes:
    """A line with its own timestamp: 100 lines in a second."""
    second, part = divmod(number, 100)
    return f"2026-01-02T03:{second // 60:02}:{second % 60:02}.{part:09}Z {text or f'line {number}'}\n".encode()


def lines(start: int, end: int) -> list[bytes]:
    return [line(number) for number in range(start, end)]


class LogCluster:
    """A connection that follows the log breaks after so many bytes, by `cuts`.

    After the last one, the container has ended. The log of the run before the last restart is `previous`.
    """

    def __init__(self, log: list[bytes], *, cuts: tuple[int, ...] = (), previous: bytes | None = None, restarts: int = 0):
        self.log, self.cuts, self.previous, self.restarts = log, list(cuts), previous, restarts
        self.waits, self.uid = "", "u"
        self.failures: list[Exception] = []
        self.asked: list[dict[str, Any]] = []

    def get(self, *_arguments: Any) -> dict[str, Any]:
        if self.failures:
            raise self.failures.pop(0)
        state: dict[str, Any] = {"running": {}} if self.cuts else {"terminated": {"exitCode": 0}}
        entry = {
            "name": "main",
            "restartCount": self.restarts,
            "state": {"waiting": {"reason": self.waits}} if self.waits else state,
        }
        status = {"phase": "Running" if self.cuts or self.waits else "Succeeded", "containerStatuses": [entry]}
        return pod("p", metadata={"uid": self.uid}, status=status)

    def logs(self, *_arguments: Any, **options: Any) -> Iterator[bytes]:
        self.asked.append(options)
        if self.waits or (options.get("previous") and self.previous is None):
            raise BadRequest(f"container is waiting to start: {self.waits}" if self.waits else "previous container not found")
        since = (options.get("since_time") or "").encode()[:19]
        tail = self.log[-options["tail_lines"] :] if options.get("tail_lines") is not None else self.log
        text = b"".join(each for each in tail if each[:19] >= since)
        if options.get("previous") and self.previous:
            text = self.previous
        if options.get("follow") and self.cuts:
            text = text[: self.cuts.pop(0)]
            yield from parts(text)
            raise ServiceUnavailable("the connection broke")
        if not options.get("timestamps"):
            text = b"".join(each.partition(b" ")[2] for each in text.splitlines(keepends=True))
        yield from parts(text[: options.get("limit_bytes")])


def parts(text: bytes) -> Iterator[bytes]:
    yield from (text[start : start + CHUNK] for start in range(0, len(text), CHUNK))
