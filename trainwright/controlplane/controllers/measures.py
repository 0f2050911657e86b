"""What a controller counts about its own work, and what that is called at `/metrics`: a fixed number of series for each controller."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from trainwright.controlplane.exposition import Family

if TYPE_CHECKING:
    from trainwright.controlplane.controllers.controller import Controller

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the histogram, in seconds: beside the store a key takes a millisecond, over the network a hundred."""
Result = Literal["success", "later", "overtaken", "stuck", "error", "crash"]
RESULTS: tuple[Result, ...] = ("success", "later", "overtaken", "stuck", "error", "crash")
"""later: done, and to be looked at again; overtaken: somebody wrote first; stuck: waits for somebody; crash: an error of ours."""


class Measures:
    """Times and results of one controller. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0
        self._results: dict[Result, int] = dict.fromkeys(RESULTS, 0)

    def observe(self, result: Result, seconds: float) -> None:
        place = bisect_left(BOUNDS, seconds)
        with self._lock:
            self._counts[place] += 1
            self._seconds += seconds
            self._results[result] += 1

    def add_to(self, times: Family, results: Family, controller: str) -> None:
        with self._lock:
            counts, seconds, by_result = list(self._counts), self._seconds, dict(self._results)
        times.add_histogram(BOUNDS, counts, seconds, ("controller", controller))
        for result, count in by_result.items():
            results.add(count, ("controller", controller), ("result", result))


def families_of(controllers: Iterable[Controller]) -> list[Family]:
    """Everything that controllers and their queues count."""
    times = Family("trainwright_reconcile_seconds", "histogram", "Time to reconcile one key.")
    results = Family("trainwright_reconcile_total", "counter", "Reconciled keys by how that ended.")
    depth = Family("trainwright_queue_depth", "gauge", "Keys that wait to be reconciled.")
    oldest = Family("trainwright_queue_oldest_seconds", "gauge", "How long the first of them has waited.")
    adds = Family("trainwright_queue_adds_total", "counter", "Keys queued; a key that waits already is not counted again.")
    retries = Family("trainwright_queue_retries_total", "counter", "Keys queued again after a failure.")
    failing = Family("trainwright_queue_failing", "gauge", "Keys whose last reconcile failed.")
    for controller in controllers:
        controller.measures.add_to(times, results, controller.name)
        state = controller.queue.state()
        label = ("controller", controller.name)
        for family, value in (
            (depth, state.depth),
            (oldest, state.oldest_seconds),
            (adds, state.adds),
            (retries, state.retries),
            (failing, state.failing),
        ):
            family.add(value, label)
    return [times, results, depth, oldest, adds, retries, failing]
