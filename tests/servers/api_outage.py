"""An API server that fails from a chosen moment on: faults for every request, or watches that have expired."""

from __future__ import annotations

import random
import socket
import time
from contextlib import suppress
from http.client import HTTPSConnection
from pathlib import Path

from support.rounds import IS_LONG

from servers.faulty_api import FaultyApi

OUTAGE_SECONDS = 30.0 if IS_LONG else 12.0
"""Long enough for every kind of fault with the back-off of a single client."""
FORBIDDEN_SECONDS = 4.0
"""A restarted API server answers 403 to everybody until its caches of roles are full."""
FAULTS = ("429", "429-after", "500", "500-text", "reset-before", "reset-after")


class Outage(FaultyApi):
    """The proxy, whose every answer is a fault for a time, which begins with the first request of a kind or with `begin`.

    With `is_restart` the API server is restarted then: its answers are 403 for some seconds more.
    """

    def __init__(self, folder: Path, upstream: Path, seed: int, kind: str | None, *, is_restart: bool = False):
        self.kind, self._random, self.is_restart = kind, random.Random(seed), is_restart
        self._connections: list[socket.socket] = []
        self._expired: list[str] = []
        self.began = 0.0
        self.faults: list[tuple[float, str]] = []
        """Seconds since the beginning of the outage, and what was answered then."""
        super().__init__(folder, upstream, seed)

    def begin(self) -> None:
        """Begin the outage: what is open, such as watches, ends."""
        self.began = time.monotonic()
        self._cut()

    def expire(self) -> None:
        """End the open watches, and tell the next two that their version is too old, as an answer and as an event."""
        self._expired = ["410", "410-event"]
        self._cut()

    @property
    def has_expired(self) -> bool:
        """Whether both have been told."""
        return not self._expired

    def _cut(self) -> None:
        for each in self._connections:
            with suppress(OSError):  # closed already
                each.shutdown(socket.SHUT_RDWR)

    @property
    def is_over(self) -> bool:
        seconds = OUTAGE_SECONDS + (FORBIDDEN_SECONDS if self.is_restart else 0)
        return bool(self.began) and time.monotonic() - self.began >= seconds

    def fault_for(self, kind: str) -> str:
        with self._lock:
            if kind == "watch" and self._expired:
                return self._expired.pop(0)
            if not self.began and self.kind in ("", kind):
                self.begin()
            if not self.began or self.is_over:
                return ""
            if time.monotonic() - self.began >= OUTAGE_SECONDS:
                self.faults.append((time.monotonic() - self.began, "403"))
                return "403"
            # Every kind of fault in turn, in an order of their own.
            number = len(self.faults) % len(FAULTS)
            if number == 0:
                self._order = self._random.sample(FAULTS, len(FAULTS))
            fault = self._order[number]
            self.faults.append((time.monotonic() - self.began, fault))
            # What is streamed arrives before the connection is reset, and is no failure.
            return "reset-before" if fault == "reset-after" and kind in ("watch", "log") else fault

    def connection(self) -> HTTPSConnection:
        connection = super().connection()
        connection.connect()
        self._connections.append(connection.sock)
        return connection
