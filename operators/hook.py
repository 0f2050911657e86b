"""Connects to a cluster with an Airflow connection of type `trainwright`, or of type `kubernetes` of the cncf provider.

Without a connection the cluster is found as everywhere else: KUBECONFIG, the pod's service account, `~/.kube/config`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow.sdk import BaseHook

_KUBERNETES_PREFIX = "extra__kubernetes__"


@dataclass(frozen=True)
class Settings:
    """The settings of a connection. Empty values default to the environment."""

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    submission_mode: str = ""


class TrainwrightHook(BaseHook):
    """With an empty `conn_id`, or None, no connection is used. `submission_mode` overrides that of the connection."""

    conn_name_attr = "trainwright_conn_id"
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
        )

    def settings(self) -> Settings:
        """The settings of the connection. Raises ValueError for unsupported settings."""
        if not self.conn_id:
            return Settings()
        connection = self.get_connection(self.conn_id)
        extra = dict(connection.extra_dejson or {})
        if connection.conn_type == "kubernetes":
            return _from_kubernetes(extra, self.conn_id)
        return Settings(*(str(extra.get(name) or "") for name in ("kubeconfig", "context", "namespace", "submission_mode")))


def _from_kubernetes(extra: dict[str, Any], conn_id: str) -> Settings:
    extra = {name.removeprefix(_KUBERNETES_PREFIX): value for name, value in extra.items()}
    if extra.get("kube_config"):
        raise ValueError(f"connection {conn_id!r}: kube_config as text is not supported; set kube_config_path")
    return Settings(
        *(str(extra.get(name) or "") for name in ("kube_config_path", "cluster_context", "namespace", "submission_mode"))
    )
