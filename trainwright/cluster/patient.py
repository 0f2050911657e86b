"""A cluster that is asked again where it had no answer for the moment: overloaded, restarting, out of reach, cut off.

For what runs once and must not fail for that, such as a submission; a `Reflector` has patience of its own. Only what can be
repeated is: reads, and writes whose second try finds what the first one did.
"""

from __future__ import annotations

import builtins
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from trainwright.api.errors import AlreadyExists, ApiError, NotFound
from trainwright.api.kinds import Kind, kind_of
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster, Listing, WatchEvent

PATIENCE_SECONDS = 30.0
_FIRST_PAUSE, _MOST_PAUSE = 0.2, 5.0
T = TypeVar("T")
log = logging.getLogger(__name__)


class PatientCluster:
    """Implements `Cluster` on another one. `seconds` are those that it waits in all; after them errors are the caller's.

    A `stop` that is set ends its patience.
    """

    def __init__(self, cluster: Cluster, *, seconds: float = PATIENCE_SECONDS, stop: threading.Event | None = None):
        self._cluster, self._left = cluster, seconds
        self._stop = stop or threading.Event()

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        return self.patiently(lambda: self._cluster.get(kind, name, namespace))

    def list(self, kind: Kind, namespace: str | None = None, **selectors: str) -> Listing:
        return self.patiently(lambda: self._cluster.list(kind, namespace, **selectors))

    def watch(self, kind: Kind, namespace: str | None = None, **more: Any) -> Iterator[WatchEvent]:
        return self._cluster.watch(kind, namespace, **more)

    def create(self, obj: Obj) -> Obj:
        """As it is there, where an earlier try of this call was lost; the caller looks whether it is his."""
        tries = 0

        def once() -> Obj:
            nonlocal tries
            tries += 1
            try:
                return self._cluster.create(obj)
            except AlreadyExists:
                kind = kind_of(obj)
                if tries == 1 or kind is None:
                    raise
                return self._cluster.get(kind, name_of(obj), namespace_of(obj))

        return self.patiently(once)

    def update(self, obj: Obj) -> Obj:
        return self._cluster.update(obj)  # a second try would conflict with the first

    def update_status(self, obj: Obj) -> Obj:
        return self._cluster.update_status(obj)

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **more: Any) -> Obj:
        """A merge or apply patch can be repeated; where it names a version its second try conflicts, which is the caller's."""
        if more.get("patch_type") == "json":
            return self._cluster.patch(kind, name, patch, namespace, **more)
        return self.patiently(lambda: self._cluster.patch(kind, name, patch, namespace, **more))

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **more: Any) -> None:
        tries = 0

        def once() -> None:
            nonlocal tries
            tries += 1
            try:
                self._cluster.delete(kind, name, namespace, **more)
            except NotFound:
                if tries == 1:
                    raise

        self.patiently(once)

    def logs(self, name: str, namespace: str, *, follow: bool = False, **more: Any) -> Iterator[bytes]:
        """A log that is followed breaks as ever: who reads it knows where to go on."""
        if follow:
            return self._cluster.logs(name, namespace, follow=True, **more)
        return iter(self.patiently(lambda: builtins.list(self._cluster.logs(name, namespace, **more))))

    def patiently(self, ask: Callable[[], T]) -> T:
        """The answer of `ask`, a read or anything else that can be repeated."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return ask()
            except ApiError as error:
                wanted = min(error.retry_after or pause * random.uniform(0.5, 1.5), self._left)
                if not error.retryable or wanted <= 0 or self._stop.is_set():
                    raise
                log.warning("no answer for the moment error=%s; trying again in %.1f s", error.message, wanted)
            began = time.monotonic()
            self._stop.wait(wanted)
            self._left -= time.monotonic() - began
            pause = min(pause * 2, _MOST_PAUSE)
