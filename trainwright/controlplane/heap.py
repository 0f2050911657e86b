"""The memory of the control plane: a limit, and what the C library returns to the operating system.

By default glibc learns from the first large blocks to keep such blocks: after a burst of large objects the process stays large.
"""

from __future__ import annotations

import ctypes
import resource

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
"""Parameters of glibc's mallopt(3)."""
_LARGE = 128 * 1024
"""Bytes from which a block is mapped, and unmapped when it is freed: glibc's initial value, which is then no longer raised."""
_ARENAS = 2
"""Heaps that threads share; each keeps free memory of its own. glibc's default is eight for each CPU."""
_MOST = 4 * 1024**3
"""Bytes, ten times what 10,000 TrainJobs take with their JobSets and pods: whatever takes more is a mistake, or an attack."""


def limit_memory() -> None:
    """Let this process fail to get memory before the machine has none left. Programs of pods get the limit that it was started with.

    That is kept as the hard limit, to which `reset_process` sets theirs: a child inherits it with any environment.
    """
    given = resource.getrlimit(resource.RLIMIT_DATA)[0]
    most = _MOST if given == resource.RLIM_INFINITY else min(given, _MOST)
    resource.setrlimit(resource.RLIMIT_DATA, (most, given))


def tune_heap() -> None:
    """Call before threads are started. Affects the whole process; does nothing with a C library other than glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_ARENA_MAX, _ARENAS)
