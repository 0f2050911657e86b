"""Which cluster a command speaks to, and in which namespace: the options that all such commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainwright.cluster import connect
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.controlplane.home import Home

Namespace = Annotated[str, typer.Option("-n", "--namespace", help="Default: the one of the kubeconfig.")]
Kubeconfig = Annotated[Path | None, typer.Option("--kubeconfig", help="Default: KUBECONFIG, the pod's account, ~/.kube/config.")]
HomeChoice = Annotated[Path | None, typer.Option("--home", help="Use the embedded cluster of this folder.")]


def cluster_for(kubeconfig: Path | None, home: Path | None) -> KubernetesCluster:
    """The cluster that the options name. Raises NoCluster."""
    return connect(Home.chosen(home).kubeconfig if home is not None else kubeconfig)
