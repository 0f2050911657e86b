"""Metrics of controllers and their queues, and of TrainJobs, JobSets and pods: phases and restarts.

Controllers have a fixed number of series each. Those of objects are updated on every change, so that the cost of a scrape does not
depend on the number of objects.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Literal, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from trainwright.api.containers import restart_count
from trainwright.api.kinds import JOBSET, POD, TRAINJOB, Kind
from trainwright.api.objects import Obj, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.cluster.reflector import Handler
from trainwright.controlplane.controllers.queue import KeyQueue

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the histogram, in seconds: a reconcile takes 1 ms with an embedded store, 100 ms over the network."""
Result = Literal["success", "requeue_after", "conflict", "terminal", "error", "panic"]
RESULTS: tuple[Result, ...] = ("success", "requeue_after", "conflict", "terminal", "error", "panic")
"""requeue_after: succeeded, requeued with a delay; conflict: another writer was faster; terminal: a retry cannot succeed;
panic: an unexpected exception."""
_POD_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


class ControllerMetrics:
    """Durations and results of one controller. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0
        self._results: dict[Result, int] = dict.fromkeys(RESULTS, 0)

    def observe(self, result: Result, seconds: float) -> None:
        bucket = bisect_left(BOUNDS, seconds)
        with self._lock:
            self._counts[bucket] += 1
            self._seconds += seconds
            self._results[result] += 1

    def add_to(self, times: HistogramMetricFamily, results: CounterMetricFamily, controller: str) -> None:
        with self._lock:
            counts, seconds, by_result = list(self._counts), self._seconds, dict(self._results)
        bounds = [*map(str, BOUNDS), "+Inf"]
        times.add_metric([controller], list(zip(bounds, accumulate(counts), strict=True)), seconds)
        for result, count in by_result.items():
            results.add_metric([controller, result], count)


class HasMetrics(Protocol):
    """A controller, as far as its metrics are concerned."""

    @property
    def name(self) -> str: ...

    @property
    def queue(self) -> KeyQueue: ...

    @property
    def metrics(self) -> ControllerMetrics: ...


def metric_families(controllers: Iterable[HasMetrics]) -> list[Metric]:
    """Return the metrics of all controllers and their queues."""
    by = ["controller"]
    times = HistogramMetricFamily("trainwright_reconcile_seconds", "Time to reconcile one key.", labels=by)
    results = CounterMetricFamily("trainwright_reconcile", "Reconciled keys by result.", labels=[*by, "result"])
    depth = GaugeMetricFamily("trainwright_queue_depth", "Keys waiting to be reconciled.", labels=by)
    oldest = GaugeMetricFamily("trainwright_queue_oldest_seconds", "Waiting time of the oldest key.", labels=by)
    adds = CounterMetricFamily("trainwright_queue_adds", "Keys added to the queue; duplicates are not counted.", labels=by)
    retries = CounterMetricFamily("trainwright_queue_retries", "Keys requeued after a failure.", labels=by)
    failing = GaugeMetricFamily("trainwright_queue_failing", "Keys whose last reconcile failed.", labels=by)
    for controller in controllers:
        controller.metrics.add_to(times, results, controller.name)
        state = controller.queue.state()
        depth.add_metric([controller.name], state.depth)
        oldest.add_metric([controller.name], state.oldest_seconds)
        adds.add_metric([controller.name], state.adds)
        retries.add_metric([controller.name], state.retries)
        failing.add_metric([controller.name], state.failing)
    return [times, results, depth, oldest, adds, retries, failing]


class PhaseCounter:
    """Counts the objects of one kind. `observe` is for one thread; all threads may read."""

    def __init__(self, phases: Sequence[str], phase: Callable[[Obj], str], restarts: Callable[[Obj], int] = lambda obj: 0):
        self.phases = dict.fromkeys(phases, 0)
        self.restarts = 0
        """Restarts since the start of this process; restarts before an object is first seen are not counted."""
        self._phase, self._restarts = phase, restarts
        self._known: dict[str, tuple[str, int]] = {}

    def observe(self, event: str, obj: Obj) -> None:
        uid = uid_of(obj)
        before = self._known.get(uid)
        if event == "DELETED":
            if before is not None:
                self.phases[before[0]] -= 1
                del self._known[uid]
            return
        now = (self._phase(obj), self._restarts(obj))
        if now == before:
            return  # most changes concern neither phase nor restarts
        self._known[uid] = now
        self.phases[now[0]] += 1
        if before is not None:
            self.phases[before[0]] -= 1
            self.restarts += max(now[1] - before[1], 0)


class ObjectMetrics:
    """Counters of TrainJobs, JobSets and, if they are watched, pods."""

    def __init__(self, *, pods: bool):
        self._trainjobs = PhaseCounter([str(phase) for phase in Phase], lambda job: str(phase_of(job)))
        self._jobsets = PhaseCounter(
            ("",), lambda jobset: "", lambda jobset: int((jobset.get("status") or {}).get("restarts") or 0)
        )
        self._pods = PhaseCounter(_POD_PHASES, _pod_phase, restart_count) if pods else None

    def handlers(self) -> Mapping[Kind, Handler]:
        handlers = {TRAINJOB: self._trainjobs.observe, JOBSET: self._jobsets.observe}
        return handlers | ({POD: self._pods.observe} if self._pods is not None else {})

    def families(self) -> list[Metric]:
        families = [_phases("trainwright_trainjobs", "TrainJobs by phase.", self._trainjobs)]
        families.append(CounterMetricFamily("trainwright_jobset_restarts", "Restarts of JobSets.", value=self._jobsets.restarts))
        if self._pods is not None:
            restarts = self._pods.restarts
            families.append(_phases("trainwright_pods", "Pods by phase.", self._pods))
            families.append(
                CounterMetricFamily("trainwright_container_restarts", "Restarts of containers in their pod.", value=restarts)
            )
        return families


def _pod_phase(pod: Obj) -> str:
    phase = (pod.get("status") or {}).get("phase") or "Pending"
    return phase if phase in _POD_PHASES else "Unknown"


def _phases(name: str, about: str, counter: PhaseCounter) -> Metric:
    family = GaugeMetricFamily(name, about, labels=["phase"])
    for phase, count in counter.phases.items():
        family.add_metric([phase], count)
    return family
