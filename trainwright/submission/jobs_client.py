"""A client for TrainJobs on a cluster, in the submission mode of that cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.cluster.connect import NoCluster, connect, start_embedded
from trainwright.cluster.delegating import DelegatingCluster
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.options import ListOptions
from trainwright.cluster.protocol import Cluster, Listing
from trainwright.cluster.warning_headers import OnWarning
from trainwright.materialize import materialize
from trainwright.submission.controller_lease import is_embedded_server
from trainwright.submission.jobset_mode import JobSetCluster
from trainwright.submission.jobset_mode.build import Built
from trainwright.submission.mode import Choice, Mode, choose_mode, requested_mode

log = logging.getLogger(__name__)


def is_embedded(cluster: Cluster) -> bool:
    """Whether a cluster is an embedded one that runs in another process. Raises ApiError."""
    base = cluster.base if isinstance(cluster, JobsClient) else cluster
    return isinstance(base, KubernetesCluster) and is_embedded_server(base)


class JobsClient(DelegatingCluster):
    """A `Cluster` on which TrainJobs can be submitted and followed in either mode; `base` is the underlying cluster."""

    def __init__(self, cluster: Cluster, choice: Choice, *, base: Cluster, default_namespace: str = "default"):
        super().__init__(cluster)
        self.choice, self.base, self.default_namespace = choice, base, default_namespace

    @classmethod
    def in_mode(cls, base: Cluster, choice: Choice, *, default_namespace: str = "default") -> JobsClient:
        """Return a client in the mode of `choice`."""
        if choice.mode is Mode.jobset:
            cluster_in_mode = JobSetCluster(base, served=choice.served, default_namespace=default_namespace)
            return cls(cluster_in_mode, choice, base=base, default_namespace=default_namespace)
        return cls(base, choice, base=base, default_namespace=default_namespace)

    @classmethod
    def of(cls, cluster: Cluster) -> JobsClient:
        """Return `cluster` itself if it is a client, else a client in its mode."""
        if isinstance(cluster, JobsClient):
            return cluster
        mode, base = (Mode.jobset, cluster.base) if isinstance(cluster, JobSetCluster) else (Mode.trainjob, cluster)
        namespace = getattr(cluster, "default_namespace", "default")
        return cls(cluster, Choice(mode, "as connected", forced=True), base=base, default_namespace=namespace)

    @property
    def mode(self) -> Mode:
        """`trainjob` or `jobset`."""
        return self.choice.mode

    @property
    def uses_bundled_runtimes(self) -> bool:
        """Whether bundled runtimes are used for those that the cluster does not have: true if JobSets are built by the client."""
        return self.mode is Mode.jobset

    @property
    def cluster_in_mode(self) -> Cluster:
        """`base`, or its view in which TrainJobs are JobSets. The same object for the lifetime of this client."""
        return self._cluster

    def other_mode(self) -> JobsClient:
        """Return a client for the same cluster in the other mode."""
        other = Mode.trainjob if self.mode is Mode.jobset else Mode.jobset
        choice = replace(self.choice, mode=other, forced=True)
        return JobsClient.in_mode(self.base, choice, default_namespace=self.default_namespace)

    def pages(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Iterator[Listing]:
        """Yield a list page by page if the cluster supports it; else as one page."""
        pages = getattr(self._cluster, "pages", None)
        yield from pages(kind, namespace, **options) if pages else [self._cluster.list(kind, namespace, **options)]

    def build(self, trainjob: Obj, sent: Obj, runtime: Obj) -> Built:
        """Materialize a TrainJob with its runtime, for `submit`. `sent` is the TrainJob in the API version that the cluster serves.

        If a controller builds the objects, the result is a preview: without keys, and empty for a job with another manager.
        Raises RuntimeNotFound, Invalid.
        """
        if isinstance(self._cluster, JobSetCluster):
            return self._cluster.build(sent, runtime)
        objects = materialize(trainjob, runtime)
        return Built(sent, objects[-1] if objects else None, objects[:-1])

    def submit(self, built: Built, *, on_warning: OnWarning | None = None) -> Obj:
        """Create the TrainJob, or the JobSet that represents it in this mode. Raises the errors of `Cluster.create`.

        The server rejects a TrainJob with a field that its version of Trainer does not have.
        """
        if isinstance(self._cluster, JobSetCluster):
            return self._cluster.submit(built, on_warning=on_warning)
        return self._cluster.create(built.trainjob, field_validation="Strict", on_warning=on_warning)


def connect_for_jobs(
    kubeconfig: str | Path | None = None,
    *,
    context: str | None = None,
    embedded: str | Path | None = None,
    namespace: str = "",
    mode: str = "",
    in_cluster: bool = False,
) -> JobsClient:
    """Connect as `connect` does, to submit or follow TrainJobs, in the requested mode or the one that suits the cluster.

    `namespace` overrides the kubeconfig's. The mode `embedded` starts the embedded control plane with the home `embedded`,
    or with the default home; with `in_cluster` only the pod's service account counts. Raises NoCluster, NoTrainingApi, and
    ApiError if the API server is unreachable.
    """
    requested = requested_mode(mode)
    if requested is Mode.embedded and embedded is None:
        if kubeconfig is None:
            kubeconfig = start_embedded()
        elif mode:
            raise NoCluster(f"the submission mode embedded conflicts with the kubeconfig {kubeconfig}: use only one of them")
        else:  # the kubeconfig argument overrides the environment variable
            requested = Mode.auto
    cluster = connect(kubeconfig, context=context, embedded=embedded, in_cluster=in_cluster)
    return for_jobs(cluster, requested, namespace=namespace)


def for_jobs(cluster: KubernetesCluster, mode: str = "", *, namespace: str = "") -> JobsClient:
    """Return a client for a cluster, as `connect_for_jobs` does; logs the chosen mode."""
    choice = choose_mode(cluster, requested_mode(mode), namespace=namespace)
    log.info("event=submission_mode_selected mode=%s reason=%s host=%s", choice.mode, choice.reason, cluster.host)
    if choice.warning:
        log.warning("event=submission_mode_warning mode=%s warning=%s", choice.mode, choice.warning)
    return JobsClient.in_mode(cluster, choice, default_namespace=namespace or cluster.default_namespace)
