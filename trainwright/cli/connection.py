"""Options that select the cluster, the namespace and the submission mode of a command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from trainwright.api.one_line import one_line
from trainwright.cluster import connect
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.controlplane.home import Home
from trainwright.submission import connect_for_jobs
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.mode import Mode


def home_folder(value: Path | None) -> Path | None:
    """Callback of `--home`: rejects what can be no folder, such as a name that is too long."""
    if value is not None:
        try:
            os.stat(Home.chosen(value).path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise typer.BadParameter(f"{one_line(error.strerror)}: {one_line(value)[:_MOST_SHOWN]}") from None
        except (RuntimeError, ValueError):
            raise typer.BadParameter(f"not a folder: {one_line(value)[:_MOST_SHOWN]}") from None
    return value


_MOST_SHOWN = 80
Namespace = Annotated[str, typer.Option("-n", "--namespace", help="Default: the kubeconfig's.")]
Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Default: KUBECONFIG, the pod's service account, ~/.kube/config.")
]
HomeChoice = Annotated[Path | None, typer.Option("--home", help="Use the embedded cluster in this folder.", callback=home_folder)]
SubmissionMode = Annotated[
    Mode | None,
    typer.Option("--submission-mode", help="Default: TRAINWRIGHT_SUBMISSION_MODE, else auto, which depends on the cluster."),
]


def cluster_for(kubeconfig: Path | None, home: Path | None) -> KubernetesCluster:
    """Connect to the cluster that the options select. Raises NoCluster."""
    return connect(Home.chosen(home).kubeconfig if home is not None else kubeconfig)


def jobs_cluster_for(kubeconfig: Path | None, home: Path | None, mode: Mode | None) -> JobsClient:
    """Connect for a command on TrainJobs. Raises NoCluster, and ApiError if the API server is unreachable."""
    return connect_for_jobs(Home.chosen(home).kubeconfig if home is not None else kubeconfig, mode=mode or "")
