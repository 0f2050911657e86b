"""A standalone controller process: checks the cluster's requirements, acquires the Lease, reconciles, and releases the Lease.

While Trainer's own manager is active, it waits and is not ready, also when that one comes back later. Exit codes: 0 stopped as
requested; 1 requirements not met or cluster not reachable; 3 a port is in use; 5 the Lease was lost, so the process exits without
finishing; 6 a watch or a worker ended unexpectedly.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client.core import GaugeMetricFamily, Metric

from trainwright.api.errors import ApiError
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, JOBSET, TRAINING_RUNTIME, TRAINJOB
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller
from trainwright.controlplane.controllers.local_cache import LocalCache
from trainwright.controlplane.controllers.metrics import ObjectMetrics, metric_families
from trainwright.controlplane.exposition import CONTENT_TYPE, exposition
from trainwright.materialize import Settings
from trainwright.trainer.standalone.leader_election import FencedCluster, LeaderElectionConfig, LeaderElector
from trainwright.trainer.standalone.requirements import RequirementsNotMet, check
from trainwright.trainer.standalone.upstream_manager import Sight, UpstreamManager, check_webhooks
from trainwright.trainer.trainjob import runtime_finalizer, trainjob_controller

STOPPED, REQUIREMENTS_NOT_MET, PORT_TAKEN, LEASE_LOST, THREAD_ENDED = 0, 1, 3, 5, 6
LEASE = "trainwright-controller"
DRAIN_SECONDS = 20.0
"""Time to finish current reconciles on shutdown; a pod has a grace period of 30 s."""
_POLL_SECONDS = 1.0
Page = Callable[[], tuple[int, str]]
"""Returns the status code and text of a response."""
_TIMEOUT_SECONDS = 10
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """`namespace` None: all namespaces. `leader_election` None: disabled. Port 0: any free port."""

    namespace: str | None = None
    leader_election: LeaderElectionConfig | None = field(default_factory=LeaderElectionConfig)
    lease_namespace: str = "default"
    workers: int = 2
    takes_over_webhooks: bool = False
    address: str = "127.0.0.1"
    metrics_port: int = 8080
    health_port: int = 8081

    @property
    def lease(self) -> str:
        return f"{LEASE}-{self.namespace}" if self.namespace else LEASE


def run(cluster: KubernetesCluster, options: Options, stop: threading.Event) -> int:
    """Run until `stop` is set, and return the exit code. Errors are in the last line of the log."""
    try:
        with _pages(options, process := Process(cluster, options)):
            return process.run(stop)
    except RequirementsNotMet as error:
        log.error("%s", error)
        return REQUIREMENTS_NOT_MET
    except ApiError as error:
        log.error("the cluster is not usable: %s", error.message)
        return REQUIREMENTS_NOT_MET
    except PortTaken as error:
        log.error("%s", error)
        return PORT_TAKEN


@contextmanager
def _pages(options: Options, process: Process) -> Iterator[None]:
    health: dict[str, Page] = {"/healthz": process.alive, "/livez": process.alive, "/readyz": process.ready}
    metrics: dict[str, Page] = {"/metrics": process.metrics}
    ports = {"metrics": (options.metrics_port, metrics), "health": (options.health_port, health)}
    if options.metrics_port == options.health_port != 0:
        ports = {"metrics and health": (options.metrics_port, metrics | health)}
    with ExitStack() as stack:
        for what, (port, pages) in ports.items():
            try:
                bound_port = stack.enter_context(serve_pages(options.address, port, pages))
            except OSError as error:
                raise PortTaken(f"{options.address}:{port} for {what}: {error.strerror or error}") from error
            log.info("serving %s at http://%s:%d pid=%d", what, options.address, bound_port, os.getpid())
        yield


class PortTaken(Exception):
    """An address to listen on is in use or invalid."""


class Process:
    """The state reported by probes and metrics."""

    def __init__(self, cluster: KubernetesCluster, options: Options):
        self._cluster, self._options = cluster, options
        self._elector = self._candidate()
        self._upstream = UpstreamManager(cluster)
        self._cache: LocalCache | None = None
        self._controllers: list[Controller] = []
        self._object_metrics = ObjectMetrics(pods=False)
        self._workers: list[threading.Thread] = []
        self._threads: list[threading.Thread] = []
        self._requirements_met = False
        self._is_stopping = False

    def run(self, stop: threading.Event) -> int:
        check(self._cluster, self._options.namespace, self._lease() if self._elector else None)
        while self._acquire(stop):
            code = self._lead(stop)
            if code is not None:
                return code  # only a manager that is back leads to another round
            log.warning("event=yielded_to_upstream_manager holder=%r", self._upstream.holder)
        return STOPPED

    def _acquire(self, stop: threading.Event) -> bool:
        """Wait until Trainer's manager has gone and this process holds the Lease. Returns False if `stop` is set first."""
        while self._upstream.wait_until_gone(stop):
            self._requirements_met = True
            if self._elector is None:
                return True  # a single controller needs no Lease
            log.info("waiting for the lease name=%s/%s identity=%s", *self._lease(), self._elector.identity)
            if not self._elector.acquire(stop):
                return False
            if self._upstream.look()[0] is Sight.free:
                return True
            self._elector.release()  # Trainer's manager has started in the meantime
        return False

    def _lead(self, stop: threading.Event) -> int | None:
        """Reconcile until stopped, and return the exit code; None if Trainer's manager is back, and nothing of ours runs any more."""
        if self._elector is None:
            check_webhooks(self._cluster, removes=self._options.takes_over_webhooks)
            return self._reconcile_until_stopped(self._cluster, stop)
        renewed = threading.Event()
        renewal = threading.Thread(target=self._elector.renew, args=(renewed,), name="lease", daemon=True)
        renewal.start()
        fenced = FencedCluster(self._cluster, self._elector)
        check_webhooks(fenced, removes=self._options.takes_over_webhooks)
        code = self._reconcile_until_stopped(fenced, stop)
        if code == LEASE_LOST or self._running_workers():
            return code  # the Lease must expire by itself, since a write may still be in flight
        renewed.set()
        renewal.join(self._elector.config.renew_deadline)
        log.info("lease released=%s name=%s/%s", not renewal.is_alive() and self._elector.release(), *self._lease())
        return code

    def _reconcile_until_stopped(self, cluster: Cluster, stop: threading.Event) -> int | None:
        """Reconcile until stopped, and return the exit code, or until Trainer's manager is back, and return None.

        Current reconciles are finished, unless the Lease was lost.
        """
        halt, is_upstream_back = threading.Event(), threading.Event()
        self._start(cluster, halt, is_upstream_back)
        log.info("reconciling namespace=%s workers=%d", self._options.namespace or "(all)", self._options.workers)
        code = self._wait_until_stopped(stop, is_upstream_back)
        self._is_stopping = code is not None
        if code is None:  # the probes and metrics are those of a candidate again
            self._controllers, self._threads, self._cache = [], [], None
        halt.set()
        if code == LEASE_LOST:
            log.error("the Lease %s/%s could not be renewed in time: another controller may be active", *self._lease())
            return code  # what is still running cannot write: the fence is closed
        deadline = time.monotonic() + DRAIN_SECONDS
        for thread in self._workers:
            thread.join(max(deadline - time.monotonic(), 0.0))
        if running := self._running_workers():
            log.error("still running after %.0f s, so the lease is not released: %s", DRAIN_SECONDS, ", ".join(running))
            return THREAD_ENDED if code is None else code
        return code

    def _start(self, cluster: Cluster, halt: threading.Event, is_upstream_back: threading.Event) -> None:
        cache = LocalCache(cluster, (TRAINJOB, JOBSET), halt, self._options.namespace)
        trainjobs = trainjob_controller(cache, Settings, bundled=False, companions=False)
        trainjobs.workers = self._options.workers
        runtime_kinds = (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME) if self._options.namespace is None else (TRAINING_RUNTIME,)
        self._object_metrics = ObjectMetrics(pods=False)
        self._controllers = [trainjobs, runtime_finalizer(cache, runtime_kinds)]
        for kind, handler in self._object_metrics.handlers().items():
            cache.add_event_handler(kind, handler)
        self._workers = [thread for controller in self._controllers for thread in controller.start(cache, halt)]
        upstream = threading.Thread(target=self._watch_upstream, args=(halt, is_upstream_back), name="upstream", daemon=True)
        upstream.start()
        self._threads = [*self._workers, *cache.start(), upstream]
        self._cache = cache

    def _watch_upstream(self, halt: threading.Event, is_back: threading.Event) -> None:
        if self._upstream.wait_until_active(halt):
            is_back.set()
            halt.wait()

    def _wait_until_stopped(self, stop: threading.Event, is_upstream_back: threading.Event) -> int | None:
        while not stop.wait(_POLL_SECONDS if self._elector is None else self._seconds_held()):
            if self._elector is not None and not self._elector.is_held():
                return LEASE_LOST  # checked first: without the Lease nothing else matters
            if is_upstream_back.is_set():
                return None
            if ended := [thread.name for thread in self._threads if not thread.is_alive()]:
                log.error("threads ended unexpectedly: %s; see the log above", ", ".join(ended))
                return THREAD_ENDED
        return STOPPED

    def _seconds_held(self) -> float:
        assert self._elector is not None
        return min(max(self._elector.until - self._elector.monotonic(), 0.0), _POLL_SECONDS)

    def _running_workers(self) -> list[str]:
        return [thread.name for thread in self._workers if thread.is_alive()]

    def _candidate(self) -> LeaderElector | None:
        config = self._options.leader_election
        if config is None:
            return None
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"  # unique, since a restarted pod keeps its name
        bounded = self._cluster.with_timeout(max(config.renew_deadline / 2, 1.0))
        return LeaderElector(bounded, self._options.lease, self._options.lease_namespace, identity, config)

    def _lease(self) -> tuple[str, str]:
        return self._options.lease_namespace, self._options.lease

    def alive(self) -> tuple[int, str]:
        """Liveness: fails if a thread ended unexpectedly, or the Lease is lost and the process is still running."""
        ended_threads = [] if self._is_stopping else [thread.name for thread in self._threads if not thread.is_alive()]
        if ended_threads:
            return 500, f"ended: {', '.join(ended_threads)}\n"
        if self._controllers and self._elector is not None and not self._elector.is_held():
            return 500, "the lease is lost\n"
        return 200, "ok\n"

    def ready(self) -> tuple[int, str]:
        """Readiness: succeeds while waiting for the Lease, or while reconciling with all kinds listed.

        Fails while Trainer's own manager is active.
        """
        if self._upstream.holder and not self._is_stopping:
            return 503, f"waiting for Trainer's own manager: {self._upstream.holder}\n"
        if self._is_stopping or not self._requirements_met:
            return 503, "ending\n" if self._is_stopping else "starting\n"
        unsynced = self._cache.unsynced() if self._cache is not None else ""
        return (503, f"not listed yet: {unsynced}\n") if unsynced else (200, "ok\n")

    def metrics(self) -> tuple[int, str]:
        leads = bool(self._controllers) and (self._elector is None or self._elector.is_held())
        about = "1 for the leader, 0 for a controller that waits for the Lease."
        families: list[Metric] = [GaugeMetricFamily("trainwright_leader", about, value=leads)]
        if self._controllers:  # a candidate does not watch TrainJobs, so it must not report zero
            families += [*metric_families(self._controllers), *self._object_metrics.families()]
        return 200, exposition(families)


@contextmanager
def serve_pages(address: str, port: int, pages: dict[str, Page]) -> Iterator[int]:
    """Serve the pages by path, in threads, until the context ends. Yields the port. Raises OSError if the address is in use."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_SECONDS  # for idle clients

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            code, text = page() if page is not None else (404, "404 page not found\n")
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Do not log requests: probes are sent every few seconds."""

    server = ThreadingHTTPServer((address, port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name=f"http-{port}", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
