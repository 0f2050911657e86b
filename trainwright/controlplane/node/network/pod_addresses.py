"""Addresses of pods: each has one of 127.0.0.0/8, so that all of them can listen on the same port of this machine.

The second number comes from the node's home, so that several clusters on one machine stay out of each other's way.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import threading
from collections.abc import Set
from pathlib import Path

from trainwright.controlplane.node.downward import NODE_ADDRESS

_NETWORKS = 254
"""Of the form 127.N.0.0, from N = 1: 127.0.0.0 has the machine's own names and resolvers."""
_HOSTS = 254
"""In 127.N.M.0/24, without the two ends, which some programs take for a network and a broadcast."""
_SIZE = 256 * _HOSTS


class PodAddresses:
    """Allocates addresses and stores them in a file, so that they survive a restart of the node. Thread-safe.

    Only Linux has all of 127.0.0.0/8 without configuration; elsewhere all pods share 127.0.0.1. Raises ValueError for a damaged file.
    """

    def __init__(self, file: Path, home: Path, platform: str = sys.platform):
        self._file = file
        self._lock = threading.Lock()
        digest = hashlib.sha256(os.fsencode(home.absolute())).digest()
        self._network = digest[0] % _NETWORKS + 1
        self._is_shared = platform != "linux" or not _can_listen(self._address(0))
        self._next = int.from_bytes(digest[1:5]) % _SIZE  # two homes of one network start in different places
        self._addresses: dict[str, str] = {}
        if file.exists():
            self._load()

    def address_for(self, pod_uid: str) -> str:
        """Return the address of a pod, allocated on the first call. Raises OSError if none is left or the file cannot be written."""
        if self._is_shared:
            return NODE_ADDRESS
        with self._lock:
            if pod_uid not in self._addresses:
                self._addresses[pod_uid] = self._free()
                self._save()
            return self._addresses[pod_uid]

    def release(self, pod_uid: str) -> None:
        """Free the address of a pod that is gone. It is the last one to be used again."""
        with self._lock:
            if self._addresses.pop(pod_uid, None) is not None:
                self._save()

    def release_others(self, known: Set[str]) -> None:
        """Free the addresses of all pods but those with the UIDs `known`."""
        with self._lock:
            kept = {uid: address for uid, address in self._addresses.items() if uid in known}
            if kept != self._addresses:
                self._addresses = kept
                self._save()

    def _free(self) -> str:
        taken = set(self._addresses.values())
        for _ in range(_SIZE):
            address = self._address(self._next)
            self._next = (self._next + 1) % _SIZE
            if address not in taken:
                return address
        raise OSError(f"all {_SIZE} addresses of pods are in use")

    def _address(self, index: int) -> str:
        return f"127.{self._network}.{index // _HOSTS}.{index % _HOSTS + 1}"

    def _load(self) -> None:
        try:
            stored = json.loads(self._file.read_bytes())
            self._addresses = {str(uid): str(address) for uid, address in stored["addresses"].items()}
            self._next = int(stored["next"]) % _SIZE
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{self._file} is damaged: {error}; stop all pods and remove it") from error

    def _save(self) -> None:
        temporary = self._file.with_suffix(".new")
        with open(temporary, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            json.dump({"next": self._next, "addresses": self._addresses}, file)
        os.replace(temporary, self._file)


def _can_listen(address: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
