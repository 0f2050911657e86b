"""The number of nodes of runtimes, for TrainJobs that do not set their own. Remembered for a minute for all jobs of a runtime."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj
from trainwright.runtimes import RuntimeNotFound
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.runtime_lookup import resolve_in_cluster

_SECONDS = 60.0
_MAX_RUNTIMES = 2000


class RuntimeNodes:
    """A function of a runtime reference and a namespace. Thread-safe."""

    def __init__(self, cluster: JobsClient, *, clock: Callable[[], float] = time.monotonic):
        self._cluster, self._clock = cluster, clock
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, str], tuple[float, int]] = {}

    def __call__(self, reference: Obj, namespace: str) -> int:
        """Return the number of nodes, 0 if the runtime does not exist or cannot be read."""
        kind = str(reference.get("kind") or "")
        key = (namespace if kind == "TrainingRuntime" else "", kind, str(reference.get("name") or ""))
        now = self._clock()
        with self._lock:
            when, nodes = self._known.get(key, (0.0, -1))
        if nodes >= 0 and now - when < _SECONDS:
            return nodes
        nodes = self._read(reference, namespace)
        with self._lock:
            if len(self._known) >= _MAX_RUNTIMES:
                self._known.clear()
            self._known[key] = (now, nodes)
        return nodes

    def _read(self, reference: Obj, namespace: str) -> int:
        try:
            found = resolve_in_cluster(self._cluster, reference, namespace, bundled=self._cluster.uses_bundled_runtimes)
            return max(int((found.runtime["spec"].get("mlPolicy") or {}).get("numNodes") or 1), 1)
        except (RuntimeNotFound, ApiError, KeyError, TypeError, ValueError):  # whatever a foreign runtime contains
            return 0
