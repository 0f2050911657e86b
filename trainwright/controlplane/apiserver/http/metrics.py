"""API server metrics with kube-apiserver's names (requests, latencies, watchers, objects), and the measurement of requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.types import Message, Send

from trainwright.controlplane.apiserver.resources.registry import CONNECT_SUBRESOURCES
from trainwright.controlplane.apiserver.wire.requests import Request, parse_boolean

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the latency histogram, in seconds."""
_MAX_SERIES = 2000
"""Maximum combinations of verb, resource and code; further ones are counted as OTHER."""
VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Metrics:
    """Counts requests. Thread-safe."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter("apiserver_request", "Answered requests.", ["verb", "resource", "code"], registry=self._registry)
        self._durations = Histogram(
            "apiserver_request_duration_seconds",
            "Time to answer a request; a watch or followed log counts when it ends.",
            ["verb", "resource"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._series: set[tuple[str, str, int]] = set()
        self._lock = threading.Lock()

    def observe(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """Record one completed request."""
        with self._lock:
            if len(self._series) >= _MAX_SERIES and (verb, resource, code) not in self._series:
                verb, resource = "OTHER", ""
            self._series.add((verb, resource, code))
        self._requests.labels(verb, resource, str(code)).inc()
        self._durations.labels(verb, resource).observe(seconds)

    def families(self, revision: int, objects: Mapping[str, int], watchers: Mapping[str, int]) -> Iterator[Metric]:
        """The metric families of requests and of the store; `objects` and `watchers` are by resource."""
        for family in self._registry.collect():
            # Omit the creation times of series, which kube-apiserver does not export.
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family
        yield GaugeMetricFamily("apiserver_storage_revision", "Revision of the latest change.", value=revision)
        yield _by_resource("apiserver_storage_objects", "Stored objects.", objects)
        yield _by_resource("apiserver_registered_watchers", "Open watches.", watchers)


def _by_resource(name: str, about: str, counts: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=["resource"])
    for resource, count in sorted(counts.items()):
        family.add_metric([resource], count)
    return family


class Stopwatch:
    """Wraps `send` to record the status code and the elapsed time."""

    def __init__(self, send: Send):
        self._send = send
        self._began = time.perf_counter()
        self.code = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self.code = message["status"]
        elif message["type"] == "websocket.accept":
            self.code = 101
        await self._send(message)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began


def request_labels(request: Request) -> tuple[str, str]:
    """The verb and resource labels of a request; the resource is empty for non-resource requests."""
    verb, target = VERBS.get(request.method, request.method).upper(), request.target
    if target is None:
        return verb, ""
    if target.subresource in CONNECT_SUBRESOURCES:
        verb = "CONNECT"
    if verb == "GET" and not target.name:
        verb = "WATCH" if parse_boolean(request.query_params.get("watch")) else "LIST"
    return verb, target.kind.resource + (f"/{target.subresource}" if target.subresource else "")
