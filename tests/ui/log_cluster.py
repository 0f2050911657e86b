"""A cluster with one pod, whose state and log a test scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from factories import pod

from trainwright.api.errors import BadRequest, NotFound
from trainwright.ui.logs.spool import LogKey


def line(number: int, text: str = "") -> bytes:
    """A line with its own timestamp: 100 lines in a second."""
    second, part = divmod(number, 100)
    return f"2026-01-02T03:{second // 60:02}:{second % 60:02}.{part:09}Z {text or f'line {number}'}\n".encode()


def key(restart: int = 0, uid: str = "u", session: str = "k") -> LogKey:
    return LogKey(session, "default", "p", uid, "main", restart)


class LogCluster:
    """`connections` are what each connection to the current log yields: chunks, or an error to raise; `previous` the previous log.

    When no connection is left, the container has ended: the pod has succeeded, and the log is `final` from then on.
    """

    def __init__(
        self,
        *connections: list[bytes | Exception],
        final: bytes = b"",
        previous: bytes | None = None,
        restarts: int = 0,
        running: bool = True,
    ):
        self.connections, self.final, self.previous = list(connections), final, previous
        self.restarts, self.running = restarts, running
        self.failures: list[Exception] = []
        self.asked: list[dict[str, Any]] = []
        self.status: dict[str, Any] | None = None
        self.uid = "u"

    def on_log(self) -> None:
        """Called before each connection."""

    def get(self, *_arguments: Any) -> dict[str, Any]:
        if self.failures:
            raise self.failures.pop(0)
        is_running = self.running and bool(self.connections)
        state = {"running": {}} if is_running else {"terminated": {"exitCode": 0}}
        entry = {"name": "main", "restartCount": self.restarts, "state": state}
        status = self.status or {"phase": "Running" if is_running else "Succeeded", "containerStatuses": [entry]}
        return pod("p", metadata={"uid": self.uid}, status=status)

    def logs(self, *_arguments: Any, **options: Any) -> Iterator[bytes]:
        self.asked.append(options)
        self.on_log()
        if options["previous"]:
            if self.previous is None:
                raise BadRequest("previous terminated container not found")
            yield self.previous
            return
        for part in self.connections.pop(0) if self.connections else [self.final]:
            if isinstance(part, Exception):
                raise part
            yield part


GONE = NotFound("pods p not found")
