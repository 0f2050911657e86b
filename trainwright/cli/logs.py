"""`trainwright logs`: what the pods of a TrainJob print."""

from __future__ import annotations

from typing import Annotated

import typer

from trainwright.api.kinds import TRAINJOB
from trainwright.cli.connection import HomeChoice, Kubeconfig, Namespace, cluster_for
from trainwright.cli.problems import cluster_errors_exit
from trainwright.jobs.logs import log_lines


def register(app: typer.Typer) -> None:
    app.command("logs")(logs)


def logs(
    name: Annotated[str, typer.Argument(help="Name of the TrainJob.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the TrainJob has ended.")] = False,
    step: Annotated[str, typer.Option(help="Replicated job: node, dataset-initializer, model-initializer ...")] = "node",
    index: Annotated[int | None, typer.Option(help="Only the pod with this completion index.", min=0)] = None,
    tail: Annotated[int | None, typer.Option(help="Only the last lines of each pod.", min=0)] = None,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
) -> None:
    """Print the logs of a step's pods; with several pods each line begins with the pod's name."""
    with cluster_errors_exit():
        cluster = cluster_for(kubeconfig, home)
        trainjob = cluster.get(TRAINJOB, name, namespace or cluster.default_namespace)
        for pod, line in log_lines(cluster, trainjob, step=step, index=index, follow=follow, tail=tail):
            print(line if index is not None else f"{pod}  {line}", flush=True)
