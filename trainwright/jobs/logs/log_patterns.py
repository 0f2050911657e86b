"""Known error patterns in training logs: out of memory, and timeouts of NCCL, rendezvous and data loaders. Pure.

Exit code 1 does not identify a cause; these lines show which part of a distributed program failed, and whether a retry may help.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class LogPattern:
    """`name` is for programs, `description` for people; `is_transient` means that a retry may succeed."""

    name: str
    description: str
    is_transient: bool
    pattern: re.Pattern[str]


def _pattern(name: str, description: str, pattern: str, *, is_transient: bool) -> LogPattern:
    return LogPattern(name, description, is_transient, re.compile(pattern))


GPU_MEMORY = "gpu-out-of-memory"
LOG_PATTERNS = (
    _pattern(
        GPU_MEMORY,
        "the GPU was out of memory",
        r"(CUDA|HIP) out of memory|torch\.(cuda\.)?OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
        is_transient=False,
    ),
    _pattern(
        "data-loader-shared-memory",
        "a data-loader worker had too little shared memory",
        r"insufficient shared memory \(shm\)|DataLoader worker \(pid.*killed by signal: Bus error",
        is_transient=False,
    ),
    _pattern(
        "data-loader-timeout",
        "the data loader timed out",
        r"DataLoader timed out after",
        is_transient=False,
    ),
    _pattern(
        "data-loader-died",
        "a data-loader worker died",
        r"DataLoader worker \(pid.*(exited unexpectedly|killed by signal)",
        is_transient=False,
    ),
    _pattern(
        "nccl-timeout",
        "a collective operation of NCCL timed out",
        r"Watchdog caught collective operation timeout|Some NCCL operations have failed or timed out",
        is_transient=True,
    ),
    _pattern(
        "nccl-error",
        "NCCL lost a peer or its network",
        r"nccl(Remote|System|Internal)Error|NCCL communicator was aborted|ncclUnhandledCudaError",
        is_transient=True,
    ),
    _pattern(
        "rendezvous-timeout",
        "the nodes did not find each other in time",
        r"Rendezvous(Timeout|Connection|Closed|State)Error"
        r"|The client socket has (timed out|failed to connect)"
        r"|Timed out after \d+ seconds waiting for clients"
        r"|Rendezvous timeout|rendezvous.*timed out",
        is_transient=True,
    ),
    _pattern("disk-full", "a disk was full", r"No space left on device|Disk quota exceeded", is_transient=False),
)


def patterns_in(lines: Iterable[str]) -> tuple[LogPattern, ...]:
    """Return the patterns found in a log, each once, in the order of their first line: the first is the likely cause."""
    found: dict[str, LogPattern] = {}
    for line in lines:
        for sign in LOG_PATTERNS:
            if sign.name not in found and sign.pattern.search(line):
                found[sign.name] = sign
    return tuple(found.values())
