"""A cluster together with the mode in which TrainJobs are submitted to it: what jobs are submitted and followed with."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from trainwright.api.errors import BadRequest
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.cluster.connect import NoCluster, connect, start_embedded
from trainwright.cluster.delegating import DelegatingCluster
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.options import ListOptions
from trainwright.cluster.protocol import Cluster, Listing
from trainwright.materialize import materialize
from trainwright.submission.jobset_mode import JobSetCluster
from trainwright.submission.jobset_mode.build import Built
from trainwright.submission.mode import Choice, Mode, choose_mode, requested_mode

log = logging.getLogger(__name__)


class JobsClient(DelegatingCluster):
    """A `Cluster` on which TrainJobs can be submitted and followed, whatever the mode; `base` is the cluster without the mode."""

    def __init__(self, cluster: Cluster, choice: Choice, *, base: Cluster, default_namespace: str = "default"):
        super().__init__(cluster)
        self.choice, self.base, self.default_namespace = choice, base, default_namespace

    @classmethod
    def in_mode(cls, base: Cluster, choice: Choice, *, default_namespace: str = "default") -> JobsClient:
        """The cluster in the mode of the choice."""
        if choice.mode is Mode.jobset:
            cluster_in_mode = JobSetCluster(base, served=choice.served, default_namespace=default_namespace)
            return cls(cluster_in_mode, choice, base=base, default_namespace=default_namespace)
        return cls(base, choice, base=base, default_namespace=default_namespace)

    @classmethod
    def of(cls, cluster: Cluster) -> JobsClient:
        """The client itself; for any other cluster, a client in the mode that it is in."""
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
        """Whether a runtime that the cluster does not have comes from the catalogue: where JobSets are built here."""
        return self.mode is Mode.jobset

    @property
    def cluster_in_mode(self) -> Cluster:
        """What answers in this mode: `base`, or the view of it in which TrainJobs are JobSets. The same object for the same cluster."""
        return self._cluster

    def other_mode(self) -> JobsClient:
        """The same cluster in the mode that was not chosen."""
        other = Mode.trainjob if self.mode is Mode.jobset else Mode.jobset
        choice = replace(self.choice, mode=other, forced=True)
        return JobsClient.in_mode(self.base, choice, default_namespace=self.default_namespace)

    def pages(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Iterator[Listing]:
        """A list page by page, where the cluster can; else as one page."""
        pages = getattr(self._cluster, "pages", None)
        yield from pages(kind, namespace, **options) if pages else [self._cluster.list(kind, namespace, **options)]

    def create(self, obj: Obj, *, dry_run: bool = False) -> Obj:
        """Create an object; with `dry_run` the server only returns what it would store. Raises as `Cluster.create`."""
        if not dry_run:
            return self._cluster.create(obj)
        if not isinstance(self._cluster, KubernetesCluster | JobSetCluster):
            raise BadRequest("this cluster has no dry run")
        return self._cluster.create(obj, dry_run=True)

    def build(self, trainjob: Obj, sent: Obj, runtime: Obj) -> Built:
        """What a TrainJob becomes with that runtime, materialized once; `submit` creates it. `sent` is the TrainJob in the form
        that the cluster serves.

        Where a controller builds the objects, they are a preview: without keys, and none for a job that another manager builds.
        Raises RuntimeNotFound, Invalid.
        """
        if isinstance(self._cluster, JobSetCluster):
            return self._cluster.build(sent, runtime)
        objects = materialize(trainjob, runtime)
        return Built(sent, objects[-1] if objects else None, objects[:-1])

    def submit(self, built: Built) -> Obj:
        """Create the TrainJob that `build` was given, or what represents it in this mode. Raises as `Cluster.create`."""
        if isinstance(self._cluster, JobSetCluster):
            return self._cluster.submit(built)
        return self._cluster.create(built.trainjob)


def connect_for_jobs(
    kubeconfig: str | Path | None = None,
    *,
    context: str | None = None,
    embedded: str | Path | None = None,
    namespace: str = "",
    mode: str = "",
) -> JobsClient:
    """Connect as `connect` does, to submit or follow TrainJobs, in the requested mode or the one that fits the cluster.

    `namespace` replaces the one of the credentials. The mode `embedded` starts the embedded control plane of `embedded`, or
    of the default home. Raises NoCluster, NoTrainingApi, and ApiError for a cluster that does not answer.
    """
    requested = requested_mode(mode)
    if requested is Mode.embedded and embedded is None:
        if kubeconfig is None:
            kubeconfig = start_embedded()
        elif mode:
            raise NoCluster(f"the submission mode embedded, and the kubeconfig {kubeconfig}: name one of the two")
        else:  # an argument of this call overrides the environment variable
            requested = Mode.auto
    cluster = connect(kubeconfig, context=context, embedded=embedded)
    return for_jobs(cluster, requested, namespace=namespace)


def for_jobs(cluster: KubernetesCluster, mode: str = "", *, namespace: str = "") -> JobsClient:
    """A client for that cluster, as `connect_for_jobs` makes it; the choice of the mode is logged."""
    choice = choose_mode(cluster, requested_mode(mode), namespace=namespace)
    log.info("submission mode chosen mode=%s why=%s host=%s", choice.mode, choice.reason, cluster.host)
    if choice.warning:
        log.warning("submission mode=%s %s", choice.mode, choice.warning)
    return JobsClient.in_mode(cluster, choice, default_namespace=namespace or cluster.default_namespace)
