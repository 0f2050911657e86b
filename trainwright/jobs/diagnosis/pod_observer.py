"""Observes the pods of a TrainJob while it runs, and reads the last lines of what has failed or is about to be deleted.

A log can be read only while its pod exists, and only for the last two runs of a container.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, name_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.logs.log_excerpt import last_printed
from trainwright.jobs.state.pod_history import PodHistory, RunKey
from trainwright.jobs.state.pods import container_states, pods_of
from trainwright.jobs.state.watched_pods import PodsOfJob

MAX_READS = 24
"""Logs that are read for one job in all: a job of a thousand pods fails in a thousand pods at once."""
MAX_READS_AT_ONCE = 4
log = logging.getLogger(__name__)


class PodObserver:
    """Lists the pods of one job on request, and keeps their `history`. Not thread-safe."""

    def __init__(self, cluster: Cluster, trainjob: Obj):
        self._cluster, self._trainjob = cluster, trainjob
        self.history = PodHistory()
        self._reads_left = MAX_READS

    def observe(self) -> list[Obj]:
        """List the pods, record them, and read the last lines of new failures. Returns the pods. Raises ApiError."""
        pods = pods_of(self._cluster, self._trainjob)
        gone = self._cluster.take_gone() if isinstance(self._cluster, PodsOfJob) else ()
        self.history.observe([*gone, *pods])
        reads = 0
        for pod in pods:
            for key, previous in self._unread_runs(pod):
                if reads == MAX_READS_AT_ONCE or not self._reads_left:
                    return pods
                reads += 1
                self._read(pod, key, previous)
        return pods

    def _unread_runs(self, pod: Obj) -> Iterator[tuple[RunKey, bool]]:
        """Yield the runs whose lines are worth reading, and whether each is the container's previous one."""
        seen = self.history.of(pod)
        if seen is None:
            return
        for entry in container_states(pod):
            states = (entry.get("state") or {}, entry.get("lastState") or {})
            for previous, state in enumerate(states):
                ended = state.get("terminated")
                if ended and ended.get("exitCode"):
                    key = RunKey(str(entry["name"]), str(ended.get("finishedAt") or ""))
                    if key not in seen.lines:
                        yield key, bool(previous)
            last_chance = RunKey(str(entry["name"]), "")
            if "running" in states[0] and (seen.deletion_requested or seen.is_disrupted) and last_chance not in seen.lines:
                yield last_chance, False

    def _read(self, pod: Obj, key: RunKey, previous: bool) -> None:
        self._reads_left -= 1
        seen = self.history.of(pod)
        assert seen is not None
        seen.lines[key] = tuple(self._last_printed(pod, key, previous) or self._last_printed(pod, key, not previous))

    def _last_printed(self, pod: Obj, key: RunKey, previous: bool) -> list[str]:
        """Return the last lines of that run. The container may have been restarted since the pod was listed."""
        if previous and not key.finished:
            return []
        try:
            return last_printed(self._cluster, pod, key.container, previous=previous, finished=key.finished)
        except ApiError as error:
            log.debug("event=last_lines_not_read pod=%s container=%s error=%s", name_of(pod), key.container, error.message)
            return []
