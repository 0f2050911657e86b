"""Connects to a cluster with an Airflow connection of type `trainwright`, or of type `kubernetes` of the cncf provider.

Without a connection the cluster is found as everywhere else: KUBECONFIG, the pod's service account, `~/.kube/config`.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook

from trainwright.operators.values.connection_settings import ClusterSettings, settings_of
from trainwright.operators.values.defined_connection import defined_connection


class TrainwrightHook(BaseHook):
    """With an empty `conn_id`, or None, no connection is used. `submission_mode` overrides that of the connection."""

    conn_name_attr = "conn_id"
    default_conn_name = "trainwright_default"
    conn_type = "trainwright"
    hook_name = "Trainwright"

    def __init__(self, conn_id: str | None = None, submission_mode: str = ""):
        super().__init__()
        self.conn_id, self.submission_mode = conn_id, submission_mode

    def get_conn(self) -> Any:
        """The cluster, for TrainJobs (`trainwright.submission.JobsClient`). Raises NoCluster, ApiError."""
        from trainwright.submission import connect_for_jobs

        settings = self.settings()
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
        if not self.conn_id:
            return ClusterSettings()
        with defined_connection(self.conn_id):
            connection = self.get_connection(self.conn_id)
        return settings_of(str(connection.conn_type or ""), dict(connection.extra_dejson or {}), self.conn_id)

    def test_connection(self) -> tuple[bool, str]:
        """Whether TrainJobs can be submitted with the connection, and a sentence about it without credentials. Never raises."""
        from trainwright.operators.values.connection_check import check_cluster
        from trainwright.storage.foreign_texts import without_credentials

        try:
            return check_cluster(self.get_conn())
        except Exception as error:
            return False, without_credentials(error)
