"""All spooled logs of a server, within limits: each as long as somebody looks at it, and for a minute more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainwright.api.errors import TooManyRequests
from trainwright.cluster.protocol import Cluster
from trainwright.ui.logs.spool import LogKey, LogSpool
from trainwright.ui.logs.spool_reader import SpoolReader

_MEBI = 1024 * 1024
_LOOK_SECONDS = 2.0
_RECENTLY_SECONDS = 5.0
"""A log that was looked at within this time is not closed in favour of another one."""


@dataclass(frozen=True)
class SpoolLimits:
    """Bytes of each log and of all together, their number, and the disk space that has to remain free."""

    log_bytes: int = 1024 * _MEBI
    total_bytes: int = 4096 * _MEBI
    logs: int = 64
    logs_of_session: int = 16
    free_bytes: int = 512 * _MEBI
    idle_seconds: float = 60.0


_LIMITS = SpoolLimits()


class LogSpools:
    """Thread-safe. Call `close` at the end."""

    def __init__(self, limits: SpoolLimits = _LIMITS, *, read: Callable[[Cluster, LogSpool], None] | None = None):
        self._limits = limits
        self._read = read or (lambda cluster, spool: SpoolReader(cluster, spool).run())
        self._lock = threading.Lock()
        self._spools: dict[LogKey, LogSpool] = {}
        self._closed = threading.Event()
        self._is_watched = False

    def __len__(self) -> int:
        return len(self._spools)

    def open(self, cluster: Cluster, key: LogKey, folder: Path | None = None) -> LogSpool:
        """Return the spool of a log; starts to read it if it is not read yet. Raises TooManyRequests."""
        with self._lock:
            spool = self._spools.get(key)
            if spool is not None and not spool.is_closed:
                spool.touch()
                return spool
            if self._closed.is_set():
                raise TooManyRequests("the server is stopping")
            self._make_room(key)
            spool = LogSpool(key, self._admit, folder)
            self._spools[key] = spool
            if not self._is_watched:
                self._is_watched = True
                threading.Thread(target=self._close_idle_ones, name="idle-logs", daemon=True).start()
        threading.Thread(target=self._run, args=(cluster, spool), name=f"log-of-{key.pod}", daemon=True).start()
        return spool

    def forget(self, key: LogKey) -> None:
        """Close a log that will not change any more, so that it is read anew."""
        with self._lock:
            spool = self._spools.get(key)
            if spool is not None and spool.state.is_final:
                self._spools.pop(key).close()

    def close(self) -> None:
        """Close all logs. Idempotent."""
        self._closed.set()
        with self._lock:
            for spool in self._spools.values():
                spool.close()
            self._spools.clear()

    def _run(self, cluster: Cluster, spool: LogSpool) -> None:
        try:
            self._read(cluster, spool)
        finally:
            if not spool.state.is_final:  # a defect; the log is read anew when somebody looks again
                spool.close()

    def _make_room(self, key: LogKey) -> None:
        """Close the logs that were not looked at for longest, until one more is allowed. The caller holds the lock."""
        for keys, limit in (
            ([each for each in self._spools if each.session == key.session], self._limits.logs_of_session),
            (list(self._spools), self._limits.logs),
        ):
            known = sorted((each for each in keys if each in self._spools), key=lambda each: self._spools[each].used)
            for oldest in known[: max(0, len(known) - limit + 1)]:
                if not self._is_unused(self._spools[oldest], _RECENTLY_SECONDS):
                    raise TooManyRequests(f"{len(known)} logs are open, the limit; close some of them")
                self._spools.pop(oldest).close()

    def _admit(self, spool: LogSpool, size: int) -> str:
        """Return why a spool may not grow by so many bytes, or an empty string."""
        if spool.size + size > self._limits.log_bytes:
            return f"only the first {self._limits.log_bytes // _MEBI} MiB of this log are shown, the limit"
        with self._lock:
            total = sum(each.size for each in self._spools.values()) + size
            for each in sorted(self._spools.values(), key=lambda each: each.used):
                if total > self._limits.total_bytes and each is not spool and self._is_unused(each, _RECENTLY_SECONDS):
                    total -= each.size
                    del self._spools[each.key]
                    each.close()
        if total > self._limits.total_bytes:
            return f"the rest of the log is not shown: the open logs have {self._limits.total_bytes // _MEBI} MiB, the limit"
        if spool.free_bytes() < self._limits.free_bytes + size:
            return "the rest of the log is not shown: the disk of the server is almost full"
        return ""

    def _close_idle_ones(self) -> None:
        while not self._closed.wait(min(_LOOK_SECONDS, self._limits.idle_seconds)):
            with self._lock:
                for key, spool in list(self._spools.items()):
                    if spool.is_closed or self._is_unused(spool, self._limits.idle_seconds):
                        del self._spools[key]
                        spool.close()
                if not self._spools:
                    self._is_watched = False
                    return

    @staticmethod
    def _is_unused(spool: LogSpool, seconds: float) -> bool:
        return time.monotonic() - spool.used > seconds
