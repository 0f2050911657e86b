"""Metrics of controllers and their queues: a fixed number of series per controller."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Literal, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from trainwright.controlplane.controllers.queue import KeyQueue

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the histogram, in seconds: a reconcile takes 1 ms with an embedded store, 100 ms over the network."""
Result = Literal["success", "requeue_after", "conflict", "terminal", "error", "panic"]
RESULTS: tuple[Result, ...] = ("success", "requeue_after", "conflict", "terminal", "error", "panic")
"""requeue_after: succeeded, requeued with a delay; conflict: another writer was faster; terminal: a retry cannot succeed;
panic: an unexpected exception."""


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
