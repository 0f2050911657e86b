"""Which cluster a command speaks to, and in which namespace: the options that all such commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainwright.cluster import connect
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.controlplane.home import Home
from trainwright.submission import connect_for_jobs
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.mode import Mode

Namespace = Annotated[str, typer.Option("-n", "--namespace", help="Default: the one of the kubeconfig.")]
Kubeconfig = Annotated[Path | None, typer.Option("--kubeconfig", help="Default: KUBECONFIG, the pod's account, ~/.kube/config.")]
HomeChoice = Annotated[Path | None, typer.Option("--home", help="Use the embedded cluster of this folder.")]
SubmissionMode = Annotated[
    Mode | None,
    typer.Option("--submission-mode", help="Default: TRAINWRIGHT_SUBMISSION_MODE, else auto: what the cluster calls for."),
]


def cluster_for(kubeconfig: Path | None, home: Path | None) -> KubernetesCluster:
    """The cluster that the options name. Raises NoCluster."""
    return connect(Home.chosen(home).kubeconfig if home is not None else kubeconfig)


def jobs_cluster_for(kubeconfig: Path | None, home: Path | None, mode: Mode | None) -> JobsClient:
    """The same for a command on TrainJobs. Raises NoCluster, and ApiError where it does not answer."""
    return connect_for_jobs(Home.chosen(home).kubeconfig if home is not None else kubeconfig, mode=mode or "")
