"""What the server counts about itself, in the text form that Prometheus reads: requests, their times, watchers, objects."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping

from trainwright.controlplane.exposition import Labels, braces

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the latency histogram, in seconds."""
_MOST_SERIES = 2000
"""Combinations of verb, resource and code that are told apart; the rest is counted together."""


class Metrics:
    """Counts requests. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self._times: dict[tuple[str, str], list[float]] = {}

    def observe(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """One answered request; watches and followed logs are counted when they end."""
        with self._lock:
            if len(self._requests) >= _MOST_SERIES and (verb, resource, code) not in self._requests:
                verb, resource = "OTHER", ""
            self._requests[verb, resource, code] += 1
            times = self._times.setdefault((verb, resource), [0.0] * (len(BUCKETS) + 2))
            times[bisect_left(BUCKETS, seconds)] += 1
            times[-1] += seconds

    def text(self, gauges: Mapping[tuple[str, Labels], float]) -> str:
        """Everything counted, and the gauges handed in by name and labels."""
        with self._lock:
            lines = [*self._counters(), *self._histograms()]
        shown: set[str] = set()
        for (name, labels), value in gauges.items():
            if name not in shown:
                lines.append(f"# TYPE {name} gauge")
                shown.add(name)
            lines.append(f"{name}{braces(labels)} {value:.15g}")
        return "\n".join(lines) + "\n"

    def _counters(self) -> Iterator[str]:
        yield "# TYPE apiserver_request_total counter"
        for (verb, resource, code), count in sorted(self._requests.items()):
            labels = (("code", str(code)), ("resource", resource), ("verb", verb))
            yield f"apiserver_request_total{braces(labels)} {count}"

    def _histograms(self) -> Iterator[str]:
        name = "apiserver_request_duration_seconds"
        yield f"# TYPE {name} histogram"
        for (verb, resource), times in sorted(self._times.items()):
            labels, total = (("resource", resource), ("verb", verb)), 0.0
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), times, strict=False):
                total += count
                yield f"{name}_bucket{braces((*labels, ('le', bound)))} {total:.15g}"
            yield f"{name}_sum{braces(labels)} {times[-1]:.15g}"
            yield f"{name}_count{braces(labels)} {total:.15g}"
