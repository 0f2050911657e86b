"""Ports for the servers that tests start. Each test process claims a block of them, so that two never choose the same port.

A port that the kernel picks for a socket and that is free again when the socket closes can be given to somebody else before the
server binds it; with several test processes that happens. The blocks lie below the ports that the kernel picks, and above those of
the workers of Ray.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator

FIRST, LAST, BLOCK = 20_000, 32_000, 300
_claimed: dict[int, tuple[socket.socket, Iterator[int]]] = {}
"""The socket that holds the block of a process, and its ports in turn."""


def free_port() -> int:
    """A port of the loopback interface that nobody uses."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody uses, each returned again only after all others of the block."""
    if os.getpid() not in _claimed:
        _claimed[os.getpid()] = _claim_block()
    _, ports = _claimed[os.getpid()]
    found = list(itertools.islice(filter(_is_free, itertools.islice(ports, BLOCK - 1)), count))
    assert len(found) == count, f"fewer than {count} ports of this process are free"
    return found


def _claim_block() -> tuple[socket.socket, Iterator[int]]:
    """The first block whose first port can be bound, which its owner keeps bound to the end of the process."""
    for first in range(FIRST, LAST, BLOCK):
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", first))
        except OSError:
            holder.close()
            continue
        return holder, itertools.cycle(range(first + 1, first + BLOCK))
    raise AssertionError(f"all blocks of ports between {FIRST} and {LAST} are in use; end other runs of the tests")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
