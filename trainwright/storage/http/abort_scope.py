"""Ends requests from another thread: a read that waits for a slow server would hold up an error for a minute."""

from __future__ import annotations

import contextlib
import socket
import threading

from trainwright.storage.http.errors import Cancelled


class AbortScope:
    """Requests that end together. After `abort`, a new one is refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._is_aborted = False

    def add(self, sock: socket.socket) -> None:
        """Raises Cancelled after `abort`."""
        with self._lock:
            if self._is_aborted:
                raise Cancelled("the download was stopped")
            self._sockets.add(sock)

    def discard(self, sock: socket.socket) -> None:
        """Forget a socket: its connection may serve another request."""
        with self._lock:
            self._sockets.discard(sock)

    def abort(self) -> None:
        """Shut down the sockets of all requests, which ends the reads that threads wait in."""
        with self._lock:
            self._is_aborted = True
            for sock in self._sockets:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
