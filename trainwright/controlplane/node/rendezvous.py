"""Rendezvous ports, one per JobSet: two local jobs on Trainer's fixed port 29500 would fail, or with JAX silently join."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path


class RendezvousPorts:
    """Allocates ports and stores them in a file, so that they survive a restart of the node."""

    def __init__(self, file: Path):
        self._file = file
        self._lock = threading.Lock()
        self._ports: dict[str, int] = json.loads(file.read_bytes()) if file.exists() else {}

    def port_for(self, owner: str) -> int:
        """Return the port of a JobSet (by UID), allocated on the first call. Raises OSError if no port is free."""
        with self._lock:
            if owner not in self._ports:
                self._ports[owner] = self._free_port()
                self._save()
            return self._ports[owner]

    def release(self, owner: str) -> None:
        with self._lock:
            if self._ports.pop(owner, None) is not None:
                self._save()

    def _free_port(self) -> int:
        """Find a port that is free on all addresses, since torch's store binds all."""
        for _ in range(64):
            with socket.socket() as probe:
                probe.bind(("", 0))
                port: int = probe.getsockname()[1]
            if port not in self._ports.values():
                return port
        raise OSError("no free rendezvous port after 64 attempts")

    def _save(self) -> None:
        temporary = self._file.with_suffix(".new")
        with open(temporary, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            json.dump(self._ports, file)
        os.replace(temporary, self._file)
