"""One controller process from start to end: look whether the cluster is fit, wait for the Lease, work, hand over.

Exit codes: 0 asked to stop, and done; 1 the cluster is not fit or not reachable; 3 a port is taken; 4 another controller is at work;
5 the Lease was lost: nothing is finished then, the process just goes; 6 a watch or a worker ended that never should.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from trainwright.api.errors import ApiError
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, JOBSET, TRAINING_RUNTIME, TRAINJOB
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.census import Census
from trainwright.controlplane.controllers.controller import Controller
from trainwright.controlplane.controllers.local_cache import LocalCache
from trainwright.controlplane.controllers.measures import families_of
from trainwright.controlplane.controllers.runtime_finalizer import runtime_finalizer
from trainwright.controlplane.controllers.trainjob import trainjob_controller
from trainwright.controlplane.exposition import Family, exposed
from trainwright.controlplane.standalone.election import Election, Terms
from trainwright.controlplane.standalone.endpoints import Page, served
from trainwright.controlplane.standalone.fenced import FencedCluster
from trainwright.controlplane.standalone.requirements import OthersAtWork, Unfit, check, refuse_others
from trainwright.materialize import Settings

STOPPED, UNFIT, PORT_TAKEN, OTHERS, LOST, BROKEN = 0, 1, 3, 4, 5, 6
LEASE = "trainwright-controller"
DRAIN_SECONDS = 20.0
"""For the keys in hand when the end is asked for; a pod has 30 s in all."""
_LOOK_SECONDS = 1.0
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """`namespace` None: all of them. `terms` None: no election. A port of 0 is any that is free."""

    namespace: str | None = None
    terms: Terms | None = field(default_factory=Terms)
    lease_namespace: str = "default"
    workers: int = 2
    address: str = "127.0.0.1"
    metrics_port: int = 8080
    health_port: int = 8081

    @property
    def lease(self) -> str:
        return f"{LEASE}-{self.namespace}" if self.namespace else LEASE


def run(cluster: KubernetesCluster, options: Options, stop: threading.Event) -> int:
    """Run until `stop` is set; the exit code. What went wrong is the last line of the log."""
    try:
        with _pages(options, process := Process(cluster, options)):
            return process.run(stop)
    except Unfit as error:
        log.error("%s", error)
        return UNFIT
    except OthersAtWork as error:
        log.error("%s", error)
        return OTHERS
    except ApiError as error:
        log.error("the cluster cannot be worked on: %s", error.message)
        return UNFIT
    except PortTaken as error:
        log.error("%s", error)
        return PORT_TAKEN


class PortTaken(Exception):
    """An address to listen on cannot be had."""


class Process:
    """The state that probes and metrics tell of."""

    def __init__(self, cluster: KubernetesCluster, options: Options):
        self._cluster, self._options = cluster, options
        self._election = self._candidate()
        self._cache: LocalCache | None = None
        self._controllers: list[Controller] = []
        self._census = Census(pods=False)
        self._workers: list[threading.Thread] = []
        self._threads: list[threading.Thread] = []
        self._is_fit = False
        self._is_ending = False

    def run(self, stop: threading.Event) -> int:
        check(self._cluster, self._options.namespace, self._options.lease_namespace if self._election else None)
        refuse_others(self._cluster)
        self._is_fit = True
        if self._election is None:
            return self._work(self._cluster, stop)
        log.info("waiting for the lease name=%s/%s identity=%s", *self._lease(), self._election.identity)
        if not self._election.acquire(stop):
            return STOPPED
        try:
            refuse_others(self._cluster)  # it may have come while we waited
        except OthersAtWork:
            self._election.release()
            raise
        renewed = threading.Event()
        renewal = threading.Thread(target=self._election.renew, args=(renewed,), name="lease", daemon=True)
        renewal.start()
        code = self._work(FencedCluster(self._cluster, self._election), stop)
        if code == LOST or not self._have_ended():
            return code  # the Lease runs out by itself: a write may still be on its way
        renewed.set()
        renewal.join(self._election.terms.renew)
        log.info("lease released=%s name=%s/%s", not renewal.is_alive() and self._election.release(), *self._lease())
        return code

    def _work(self, cluster: Cluster, stop: threading.Event) -> int:
        """Reconcile until the end; what is in hand then is finished, unless the Lease was lost."""
        halt = threading.Event()
        self._start(cluster, halt)
        log.info("working namespace=%s workers=%d", self._options.namespace or "(all)", self._options.workers)
        code = self._until_the_end(stop)
        self._is_ending = True
        halt.set()
        if code == LOST:
            log.error("the Lease %s/%s could not be renewed in time: another controller may be at work", *self._lease())
            return code
        deadline = time.monotonic() + DRAIN_SECONDS
        for thread in self._workers:
            thread.join(max(deadline - time.monotonic(), 0.0))
        return code

    def _start(self, cluster: Cluster, halt: threading.Event) -> None:
        cache = LocalCache(cluster, (TRAINJOB, JOBSET), halt, self._options.namespace)
        trainjobs = trainjob_controller(cache, Settings, bundled=False, companions=False)
        trainjobs.workers = self._options.workers
        in_reach = (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME) if self._options.namespace is None else (TRAINING_RUNTIME,)
        self._controllers = [trainjobs, runtime_finalizer(cache, in_reach)]
        for kind, handler in self._census.handlers().items():
            cache.follow(kind, handler)
        self._workers = [thread for controller in self._controllers for thread in controller.start(cache, halt)]
        self._threads = [*self._workers, *cache.start()]
        self._cache = cache

    def _until_the_end(self, stop: threading.Event) -> int:
        while not stop.wait(_LOOK_SECONDS if self._election is None else self._seconds_held()):
            if self._election is not None and not self._election.is_held():
                return LOST
            if ended := [thread.name for thread in self._threads if not thread.is_alive()]:
                log.error("ended without being asked to: %s; see the log above", ", ".join(ended))
                return BROKEN
        return STOPPED

    def _seconds_held(self) -> float:
        assert self._election is not None
        return min(max(self._election.until - self._election.steady(), 0.0), _LOOK_SECONDS)

    def _have_ended(self) -> bool:
        running = [thread.name for thread in self._workers if thread.is_alive()]
        if running:
            log.error("still at work after %.0f s, the lease is kept until it ends: %s", DRAIN_SECONDS, ", ".join(running))
        return not running

    def _candidate(self) -> Election | None:
        terms = self._options.terms
        if terms is None:
            return None
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"  # a restarted pod keeps its name, and is another candidate
        patient = self._cluster.within(max(terms.renew / 2, 1.0))
        return Election(patient, self._options.lease, self._options.lease_namespace, identity, terms)

    def _lease(self) -> tuple[str, str]:
        return self._options.lease_namespace, self._options.lease

    def alive(self) -> tuple[int, str]:
        """Not alive: a thread is gone that never should, or the Lease is lost and we have not ended."""
        gone = [] if self._is_ending else [thread.name for thread in self._threads if not thread.is_alive()]
        if gone:
            return 500, f"ended: {', '.join(gone)}\n"
        if self._controllers and self._election is not None and not self._election.is_held():
            return 500, "the lease is lost\n"
        return 200, "ok\n"

    def ready(self) -> tuple[int, str]:
        """Ready: fit and waiting for the Lease, or at work with everything listed."""
        if self._is_ending or not self._is_fit:
            return 503, "ending\n" if self._is_ending else "starting\n"
        unsynced = self._cache.unsynced() if self._cache is not None else ""
        return (503, f"not listed yet: {unsynced}\n") if unsynced else (200, "ok\n")

    def metrics(self) -> tuple[int, str]:
        leader = Family("trainwright_leader", "gauge", "1 for the controller that works, 0 for one that waits for the Lease.")
        leader.add(int(bool(self._controllers) and (self._election is None or self._election.is_held())))
        families = [leader]
        if self._controllers:  # who waits knows nothing of TrainJobs, and does not say that there are none
            families += [*families_of(self._controllers), *self._census.families()]
        return 200, exposed(families)


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
                taken = stack.enter_context(served(options.address, port, pages))
            except OSError as error:
                raise PortTaken(f"{options.address}:{port} for {what}: {error.strerror or error}") from error
            log.info("serving %s at http://%s:%d pid=%d", what, options.address, taken, os.getpid())
        yield
