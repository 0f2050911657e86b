"""What the last lines of a training program's log are known to mean: timeouts of NCCL, of the rendezvous, of data loaders. Pure.

An exit code of 1 says nothing; these lines say which part of a distributed program gave up, and whether another try may help.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Sign:
    """`name` for programs, `words` for people; `passing` where the same request may well succeed next time."""

    name: str
    words: str
    passing: bool
    pattern: re.Pattern[str]


def _sign(name: str, words: str, pattern: str, *, passing: bool) -> Sign:
    return Sign(name, words, passing, re.compile(pattern))


GPU_MEMORY = "gpu-out-of-memory"
SIGNS = (
    _sign(
        GPU_MEMORY,
        "the GPU was out of memory",
        r"(CUDA|HIP) out of memory|torch\.(cuda\.)?OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
        passing=False,
    ),
    _sign(
        "data-loader-shared-memory",
        "a data-loader worker had too little shared memory",
        r"insufficient shared memory \(shm\)|DataLoader worker \(pid.*killed by signal: Bus error",
        passing=False,
    ),
    _sign(
        "data-loader-timeout",
        "the data loader timed out",
        r"DataLoader timed out after",
        passing=False,
    ),
    _sign(
        "data-loader-died",
        "a data-loader worker died",
        r"DataLoader worker \(pid.*(exited unexpectedly|killed by signal)",
        passing=False,
    ),
    _sign(
        "nccl-timeout",
        "a collective operation of NCCL timed out",
        r"Watchdog caught collective operation timeout|Some NCCL operations have failed or timed out",
        passing=True,
    ),
    _sign(
        "nccl-error",
        "NCCL lost a peer or its network",
        r"nccl(Remote|System|Internal)Error|NCCL communicator was aborted|ncclUnhandledCudaError",
        passing=True,
    ),
    _sign(
        "rendezvous-timeout",
        "the nodes did not find each other in time",
        r"Rendezvous(Timeout|Connection|Closed|State)Error"
        r"|The client socket has (timed out|failed to connect)"
        r"|Timed out after \d+ seconds waiting for clients"
        r"|Rendezvous timeout|rendezvous.*timed out",
        passing=True,
    ),
    _sign("disk-full", "a disk was full", r"No space left on device|Disk quota exceeded", passing=False),
)


def signs_in(lines: Iterable[str]) -> tuple[Sign, ...]:
    """The signs in a log, each once, in the order of their first line: what came first caused the rest."""
    found: dict[str, Sign] = {}
    for line in lines:
        for sign in SIGNS:
            if sign.name not in found and sign.pattern.search(line):
                found[sign.name] = sign
    return tuple(found.values())
