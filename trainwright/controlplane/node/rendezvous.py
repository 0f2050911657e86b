"""Rendezvous ports of JobSets: two local jobs on Trainer's fixed port 29500 would fail, or with JAX silently join.

A JobSet has one, which is that of its first pods. Frameworks in which every node listens, such as TensorFlow, name the port of
each: all pods share this machine, so every other pod has another port.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

_FIRST_POD = "-0-0"


class RendezvousPorts:
    """Allocates ports and stores them in a file, so that they survive a restart of the node."""

    def __init__(self, file: Path):
        self._file = file
        self._lock = threading.Lock()
        self._ports: dict[str, int] = json.loads(file.read_bytes()) if file.exists() else {}

    def port_for(self, jobset: str, host: str = "") -> int:
        """Return the port of a JobSet (by UID), or of one of its pods (by short host name), allocated on the first call.

        The first pod of a replicated job has the JobSet's. Raises OSError if no port is free.
        """
        owner = f"{jobset}/{host}" if host and not host.endswith(_FIRST_POD) else jobset
        with self._lock:
            if owner not in self._ports:
                self._ports[owner] = self._free_port()
                self._save()
            return self._ports[owner]

    def release(self, jobset: str) -> None:
        """Give up the ports of a JobSet and its pods."""
        with self._lock:
            kept = {owner: port for owner, port in self._ports.items() if owner.partition("/")[0] != jobset}
            if len(kept) < len(self._ports):
                self._ports = kept
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
