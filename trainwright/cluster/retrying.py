"""A cluster wrapper that retries transient errors: an overloaded, restarting or unreachable API server.

For one-time operations such as a submission; a `Reflector` has its own retries. Only idempotent requests are retried: reads, and
writes whose second try detects the effect of the first.
"""

from __future__ import annotations

import builtins
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, Unpack

from trainwright.api.errors import AlreadyExists, ApiError, Forbidden, NotFound
from trainwright.api.kinds import Kind, kind_of
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.backoff import Backoff, retry
from trainwright.cluster.protocol import (
    Cluster,
    CreateOptions,
    DelegatingCluster,
    DeleteOptions,
    Listing,
    ListOptions,
    LogOptions,
    PatchOptions,
)
from trainwright.cluster.refusals import is_admission_rejection

RETRY_SECONDS = 60.0
_BACKOFF = Backoff(0.3, 5.0)
T = TypeVar("T")
log = logging.getLogger(__name__)


class RetryingCluster(DelegatingCluster):
    """Wraps a `Cluster`. `seconds` is the total time to wait for retries; after that, errors are raised.

    Setting `stop` ends retries. Of a cluster that retries already only the requests are used: retries within retries would
    multiply the time.
    """

    def __init__(self, cluster: Cluster, *, seconds: float = RETRY_SECONDS, stop: threading.Event | None = None):
        super().__init__(cluster._cluster if isinstance(cluster, RetryingCluster) else cluster)
        self._seconds_left = seconds
        self._stop = stop or threading.Event()

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        return self.with_retries(lambda: self._cluster.get(kind, name, namespace))

    def list(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Listing:
        return self.with_retries(lambda: self._cluster.list(kind, namespace, **options))

    def create(self, obj: Obj, **options: Unpack[CreateOptions]) -> Obj:
        """Create an object. Returns the existing one if a previous try lost its response; the caller checks its owner."""
        if options.get("dry_run"):  # nothing exists after a lost answer
            return self.with_retries(lambda: self._cluster.create(obj, **options))
        attempts = 0

        def attempt() -> Obj:
            nonlocal attempts
            attempts += 1
            try:
                return self._cluster.create(obj, **options)
            except AlreadyExists:
                kind = kind_of(obj)
                if attempts == 1 or kind is None:  # only after a lost answer may it be our own
                    raise
                return self._cluster.get(kind, name_of(obj), namespace_of(obj))

        return self.with_retries(attempt)

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Unpack[PatchOptions]) -> Obj:
        """Patch an object. Merge and apply patches are retried; one with a resource version may then conflict with its first try."""
        if options.get("patch_type") == "json":  # applied twice, it may change twice: an item is added again
            return self._cluster.patch(kind, name, patch, namespace, **options)
        return self.with_retries(lambda: self._cluster.patch(kind, name, patch, namespace, **options))

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **options: Unpack[DeleteOptions]) -> None:
        attempts = 0

        def attempt() -> None:
            nonlocal attempts
            attempts += 1
            try:
                self._cluster.delete(kind, name, namespace, **options)
            except NotFound:
                if attempts == 1:  # later, our own earlier attempt has deleted it
                    raise

        self.with_retries(attempt)

    def logs(self, name: str, namespace: str, **options: Unpack[LogOptions]) -> Iterator[bytes]:
        """Read a log. A followed log is not retried: its reader resumes it."""
        if options.get("follow"):
            return self._cluster.logs(name, namespace, **options)
        return iter(self.with_retries(lambda: builtins.list(self._cluster.logs(name, namespace, **options))))

    def with_retries(self, call: Callable[[], T]) -> T:
        """Return the result of `call`, which must be idempotent. A refusal after another error may be that of a restarted server."""
        return retry(call, ApiError, self._pause_after, self._wait)

    def _pause_after(self, error: ApiError, failures: int) -> float:
        seconds = min(error.retry_after or _BACKOFF.pause(failures), self._seconds_left)
        may_pass = error.retryable or (failures > 1 and isinstance(error, Forbidden) and not is_admission_rejection(error))
        if not may_pass or seconds <= 0 or self._stop.is_set():
            raise error
        log.warning("event=request_retried error=%s retry_seconds=%.1f", error.message, seconds)
        return seconds

    def _wait(self, seconds: float) -> None:
        started = time.monotonic()
        self._stop.wait(seconds)
        self._seconds_left -= time.monotonic() - started
