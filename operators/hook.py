"""Connects to a cluster with an Airflow connection of type `trainwright`, or of type `kubernetes` of the cncf provider.

Without a connection the cluster is found as everywhere else: KUBECONFIG, the pod's service account, `~/.kube/config`.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

from trainwright.operators.values.airflow_api import answers_only_blocking_requests, apart
from trainwright.operators.values.connections import ClusterSettings, defined_connection, settings_of

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from trainwright.submission.jobs_client import JobsClient

_RECENT_SECONDS = 60.0
_recent: dict[tuple[int, str | None], tuple[float, asyncio.Task[ClusterSettings]]] = {}
_pool = ThreadPoolExecutor(4, thread_name_prefix="connect")


class TrainwrightHook(BaseHook):
    """With an empty `conn_id`, or None, no connection is used. `submission_mode` overrides that of the connection."""

    conn_name_attr = "conn_id"
    conn_type = "trainwright"
    hook_name = "Trainwright"

    def __init__(self, conn_id: str | None = None, submission_mode: str = ""):
        super().__init__()
        self.conn_id, self.submission_mode = conn_id, submission_mode

    def get_conn(self) -> JobsClient:
        """The cluster, for TrainJobs (`trainwright.submission.JobsClient`). Raises NoCluster, ApiError, and as `settings`."""
        return self.connect(self.settings())

    async def aget_conn(self) -> JobsClient:
        """As `get_conn`, on an event loop: the connection is read there, and the cluster is connected to in a thread."""
        settings = await self.recent_settings()
        return await asyncio.get_running_loop().run_in_executor(_pool, self.connect, settings)

    def connect(self, settings: ClusterSettings) -> JobsClient:
        """The cluster with these settings. Raises NoCluster, ApiError."""
        from trainwright.submission import connect_for_jobs

        return connect_for_jobs(
            settings.kubeconfig or None,
            context=settings.context or None,
            namespace=settings.namespace,
            mode=self.submission_mode or settings.submission_mode,
            in_cluster=settings.in_cluster,
        )

    def settings(self) -> ClusterSettings:
        """The settings of the connection. Raises ConnectionNotDefined, and ValueError for one of another type, or with unsupported
        settings."""
        if not self.conn_id:  # the cluster of the environment
            return ClusterSettings()
        with defined_connection(self.conn_id):
            connection = self.get_connection(self.conn_id)
        return self._settings_of(connection)

    async def asettings(self) -> ClusterSettings:
        """As `settings`, on an event loop."""
        if not self.conn_id or answers_only_blocking_requests():  # the supervisor of a test has no asynchronous requests
            return self.settings()
        with defined_connection(self.conn_id):
            connection = await self.aget_connection(self.conn_id)
        return self._settings_of(connection)

    async def recent_settings(self) -> ClusterSettings:
        """As `asettings`, read once a minute for all triggers of a process: one that starts takes a thousand of them."""
        key, now = (id(asyncio.get_running_loop()), self.conn_id), time.monotonic()
        until, reading = _recent.get(key, (0.0, None))
        if reading is None or until < now or (reading.done() and (reading.cancelled() or reading.exception())):
            reading = apart(self.asettings())
            _recent[key] = now + _RECENT_SECONDS, reading
        return await asyncio.shield(reading)

    def _settings_of(self, connection: Connection) -> ClusterSettings:
        return settings_of(str(connection.conn_type or ""), dict(connection.extra_dejson or {}), str(self.conn_id))

    def test_connection(self) -> tuple[bool, str]:
        """For the button `Test` of Airflow's form: whether TrainJobs can be submitted, and a sentence about it. Never raises."""
        from trainwright.text.foreign_texts import without_credentials

        try:
            return check_cluster(self.get_conn())
        except Exception as error:  # the form shows a sentence, whatever it was
            return False, without_credentials(error)


def check_cluster(cluster: JobsClient) -> tuple[bool, str]:
    """Return whether a client can submit TrainJobs, and a sentence about it: the cluster answers, and jobs may be created.

    Raises ApiError.
    """
    from trainwright.api.errors import ApiError
    from trainwright.cluster.discovery import is_allowed, server_version
    from trainwright.cluster.refusals import Permission

    namespace = cluster.default_namespace
    found = f"Kubernetes {server_version(cluster)} at {cluster.host}, submission mode {cluster.mode}"
    create = Permission("create", cluster.job_kind.resource, namespace)
    try:
        allowed = is_allowed(cluster, create)
    except ApiError as error:  # an account that may not ask about its permissions may have them
        return True, f"{found}; permissions cannot be checked: {error.message}"
    if not allowed:
        return False, f"{found}; missing permission: {create}"
    return True, f"{found}; TrainJobs may be created in the namespace {namespace}"
