"""Runs the embedded control plane in one process: store, API server, controllers and node, stopped in reverse order.

The server certificate is renewed before it expires, without a restart.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import threading
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client.core import Metric

from trainwright import __version__
from trainwright.api import names
from trainwright.api.errors import AlreadyExists
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, POD
from trainwright.api.objects import Obj, account_of, labels_of, name_of, namespace_of, uid_of
from trainwright.api.rules.token_life import DEFAULT_MAXIMUM
from trainwright.api.times import rfc3339
from trainwright.controlplane.apiserver.auth.credentials import load_credentials, renew_certificate, write_kubeconfig
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.endpoints.definitions import seed_definitions
from trainwright.controlplane.apiserver.endpoints.token_requests import issue_token
from trainwright.controlplane.apiserver.http.app import Api, PlaneView
from trainwright.controlplane.apiserver.http.serve import LOOPBACK, Application, PortInUse, Serving, serve
from trainwright.controlplane.apiserver.storage.journal import Durability
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.streaming.container_logs import NoLogs
from trainwright.controlplane.apiserver.streaming.sessions import NoSessions, PodStreams
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.controllers.controller import Controller
from trainwright.controlplane.controllers.garbage import garbage_collector
from trainwright.controlplane.controllers.housekeeping import claim_folders, claim_protection, event_expiry, pod_removal
from trainwright.controlplane.controllers.job import job_controller
from trainwright.controlplane.controllers.jobset import jobset_controller, pod_admission
from trainwright.controlplane.controllers.local_queue import local_queue, queues_map
from trainwright.controlplane.controllers.loop import ControllerLoop
from trainwright.controlplane.controllers.metrics import ObjectMetrics, metric_families
from trainwright.controlplane.controllers.scheduler import scheduler
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.controlplane.host_paths import HostPathPolicy
from trainwright.controlplane.node.agent import NodeAgent
from trainwright.controlplane.node.container_logs import ContainerLogs
from trainwright.datacache.objects import account_objects
from trainwright.embedded.home import Home, Running
from trainwright.embedded.lifecycle import POD_GRACE_SECONDS
from trainwright.embedded.options import ALL_CONTROLLERS, ControllerName, FeatureGates, in_order
from trainwright.embedded.page import EmbeddedPage
from trainwright.materialize import ProgressReports, Settings
from trainwright.runtimes import bundled_runtimes
from trainwright.runtimes.launcher_text import launcher_text
from trainwright.trainer.data_cache import data_cache
from trainwright.trainer.trainjob import runtime_finalizer, trainjob_controller
from trainwright.trainer.webhooks import VALIDATORS

OWNER = "trainwright"
DEFAULT_CLAIM = "workspace"
"""The PersistentVolumeClaim that the bundled runtimes mount by default."""
TRAINER_VERSION = "2.3.0"
"""The Trainer version that this API implements."""
VERSION_MAP = {"name": "kubeflow-trainer-public", "namespace": "kubeflow-system"}
"""The ConfigMap from which the Kubeflow SDK reads that version; it warns if it is missing."""
CERTIFICATE_LOOK_SECONDS = 6 * 3600.0
"""Interval of the looks at the server's certificate; far shorter than its remaining lifetime at renewal."""
log = logging.getLogger(__name__)


class ControlPlane:
    """One embedded cluster. The caller holds the home's lock.

    Of the controllers that may be left out, `controllers` run. `queues` is the queue configuration as text; None keeps the stored one.
    `token_seconds` is the longest life of a service account token; below `host_folders` everyone may choose the folders of claims.
    """

    def __init__(
        self,
        home: Home,
        *,
        gates: FeatureGates,
        node: bool = True,
        controllers: Collection[ControllerName] = ALL_CONTROLLERS,
        durability: Durability = "normal",
        queues: str | None = None,
        token_seconds: int = DEFAULT_MAXIMUM,
        host_folders: tuple[Path, ...] = (),
    ):
        home.make()
        self._home, self._gates, self._with_node = home, gates, node
        self._controller_names = in_order(controllers)
        self._queues = queues
        self._object_metrics = ObjectMetrics(pods=True)
        self._measured_controllers: list[Controller] = []
        self._serving: Serving | None = None
        self._agent: NodeAgent | None = None
        self._rotation: CertificateRotation | None = None
        self._controllers: ControllerLoop | None = None
        self._store = Store(home.database, durability=durability)
        self._host_paths = HostPathPolicy.of_cluster(home.path, home.claims, host_folders)
        self._server = ResourceServer(self._store, host_paths=self._host_paths, service_accounts=node, validators=VALIDATORS)
        self._credentials = load_credentials(home.credentials)
        self._authority = self._credentials.authority.read_text("ascii")
        self._tokens = Tokens(self._credentials.admin_token, self._credentials.signing_key, token_seconds)
        logs = ContainerLogs(home.node / "pods") if node else NoLogs()
        self._logs = logs
        self.cluster = EmbeddedCluster(self._server, logs)
        self._page = EmbeddedPage(home, self.cluster)

    def start(self, port: int | None = None) -> Running:
        """Start all components; returns when the API server is ready. `port` defaults to the last one, or a free one.

        Raises PortInUse if a requested port is in use.
        """
        self._seed()
        if self._with_node:
            self._agent = NodeAgent(
                self.cluster,
                self._home.node,
                self._issue_token,
                self._api_address,
                self._authority,
                self._host_paths,
                self._tokens.longest_seconds,
                launcher=launcher_text,
            )
        sessions = self._agent.sessions if self._agent is not None else NoSessions()
        view = PlaneView(self._metrics, self._problems, lambda: self._page.url, f"trainwright-{__version__}")
        app = Api(self._server, self._tokens, PodStreams(self._logs, sessions), view)
        self._serving = self._listen(app, port)
        write_kubeconfig(self._home.kubeconfig, self._serving.url, self._credentials)
        shared = EmbeddedCluster(self._server, self._logs, shared=True)
        controllers = [garbage_collector(shared), event_expiry(shared), *self._chosen_controllers(shared)]
        if self._agent is not None:
            self._agent.start()
            folders = claim_folders(self.cluster, self._home.claims)
            controllers += [scheduler(shared), pod_removal(shared), claim_protection(self.cluster), folders, data_cache(shared)]
        self._measured_controllers = controllers
        self._controllers = ControllerLoop(self._server, shared, controllers, self._object_metrics.handlers())
        self._controllers.start()
        self._rotation = CertificateRotation(self._home.credentials, self._serving)
        self._rotation.start()
        self._page.start()
        running = Running(
            os.getpid(),
            self._serving.port,
            self._serving.url,
            rfc3339(datetime.now(UTC)),
            node=self._with_node,
            controllers=self._controller_names,
            durability=self._store.durability,
            gates=vars(self._gates),
            token_seconds=self._tokens.longest_seconds,
            host_folders=tuple(map(str, self._host_paths.folders)),
            page=self._page.url,
        )
        self._home.announce(running)
        log.info("event=control_plane_ready url=%s home=%s", running.url, self._home.path)
        return running

    def stop(self, grace_seconds: float = POD_GRACE_SECONDS) -> None:
        """Stop in order: controllers, pods, API server, store."""
        self._home.withdraw()
        self._page.stop()
        if self._rotation is not None:
            self._rotation.stop()
        if self._controllers is not None:
            self._controllers.stop()
        if self._agent is not None:
            self._agent.stop(grace_seconds)
        if self._serving is not None:
            self._serving.stop()
        self.cluster.close()
        self._store.close()
        log.info("event=control_plane_stopped home=%s", self._home.path)

    def _chosen_controllers(self, cluster: EmbeddedCluster) -> list[Controller]:
        build: dict[ControllerName, Callable[[], list[Controller]]] = {
            ControllerName.trainjob: lambda: [
                trainjob_controller(cluster, self._settings, bundled=True),
                runtime_finalizer(cluster),
            ],
            ControllerName.jobset: lambda: [jobset_controller(cluster)],
            ControllerName.job: lambda: [job_controller(cluster, pod_admission(cluster))],
            ControllerName.local_queue: lambda: [local_queue(cluster)],
        }
        return [controller for name in self._controller_names for controller in build[name]()]

    def _listen(self, app: Application, port: int | None) -> Serving:
        wanted = self._home.last_port() if port is None else port
        try:
            return serve(app, port=wanted, cert=self._credentials.certificate, key=self._credentials.key)
        except PortInUse:  # of the last run: now of another program
            if port is not None:
                raise
            return serve(app, port=0, cert=self._credentials.certificate, key=self._credentials.key)

    def _settings(self) -> Settings:
        if not self._gates.TrainJobStatus or self._serving is None:
            return Settings(cache_keys=True)
        return Settings(progress=ProgressReports(self._serving.url, self._authority), cache_keys=True)

    def _api_address(self) -> tuple[str, int] | None:
        return None if self._serving is None else (LOOPBACK, self._serving.port)

    def _metrics(self) -> list[Metric]:
        return [*metric_families(self._measured_controllers), *self._object_metrics.families()]

    def _problems(self) -> dict[str, list[str]]:
        of_controllers = ["not started"] if self._controllers is None else self._controllers.problems()
        return {"controllers": of_controllers} | ({"node": self._agent.problems()} if self._agent is not None else {})

    def _issue_token(self, audience: str, pod: Obj, seconds: int) -> str:
        """Request a token of a pod's account, bound to the pod, as a kubelet does. Raises NotFound, Conflict."""
        bound = {"apiVersion": POD.api_version, "kind": POD.kind, "name": name_of(pod), "uid": uid_of(pod)}
        spec = {"audiences": [audience] if audience else [], "expirationSeconds": seconds, "boundObjectRef": bound}
        now = datetime.now(UTC)
        issued = issue_token(self._server, self._tokens, namespace_of(pod), account_of(pod), {"spec": spec}, now)
        return str(issued["status"]["token"])

    def _seed(self) -> None:
        """Create or update the initial objects of a cluster: CRDs, runtimes, the default claim, the version, accounts, queues."""
        seed_definitions(self._server, rfc3339(datetime.now(UTC)))
        for runtime in bundled_runtimes():
            runtime["metadata"].setdefault("labels", {})[names.MANAGED_BY_LABEL] = OWNER
            try:
                self.cluster.create(runtime)
            except AlreadyExists:  # a second start: ours follow the version, those of others stay
                existing = self.cluster.get(CLUSTER_TRAINING_RUNTIME, name_of(runtime))
                if labels_of(existing).get(names.MANAGED_BY_LABEL) == OWNER:
                    self.cluster.update({**existing, "spec": runtime["spec"]})
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": DEFAULT_CLAIM, "namespace": "default", "labels": {names.MANAGED_BY_LABEL: OWNER}},
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "20Gi"}}},
        }
        version_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**VERSION_MAP, "labels": {names.MANAGED_BY_LABEL: OWNER}},
            "data": {"kubeflow_trainer_version": TRAINER_VERSION},
        }
        for obj in (claim, version_map, *account_objects("default")):
            with contextlib.suppress(AlreadyExists):
                self.cluster.create(obj)
        if self._queues is not None:
            wanted = queues_map(self._queues)
            try:
                self.cluster.create(wanted)
            except AlreadyExists:
                self.cluster.update(wanted)


class CertificateRotation:
    """Renews the certificate of one server."""

    def __init__(self, credentials: Path, serving: Serving, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)):
        self._credentials, self._serving, self._clock = credentials, serving, clock
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, every: float = CERTIFICATE_LOOK_SECONDS) -> None:
        """Check periodically, in a thread, until `stop`."""
        self._thread = threading.Thread(target=self._run, args=(every,), name="certificate", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def look(self) -> bool:
        """Renew the certificate if it expires soon; returns whether it was renewed. Failures are logged and retried."""
        try:
            if not renew_certificate(self._credentials, self._clock()):
                return False
            loaded = load_credentials(self._credentials, now=self._clock())
            self._serving.reload(loaded.certificate, loaded.key)
        except (OSError, ssl.SSLError, ValueError) as error:
            log.error("event=certificate_renewal_failed error=%r", str(error))
            return False
        log.info("event=certificate_renewed")
        return True

    def _run(self, every: float) -> None:
        while not self._stopped.wait(every):
            self.look()
