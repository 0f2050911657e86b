"""`trainwright controller`: the TrainJob controller, for a cluster with JobSet but without Trainer's manager."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import Annotated

import typer

from trainwright.cli.connection import Kubeconfig
from trainwright.cli.errors import BAD_INPUT, cluster_errors_exit, fail
from trainwright.cli.waiting import finite_seconds


def register(app: typer.Typer) -> None:
    app.command("controller")(controller)


def controller(
    kubeconfig: Kubeconfig = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig; default: its current context.")] = None,
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="Reconcile only this namespace; default: all.")
    ] = None,
    leader_elect: Annotated[
        bool, typer.Option("--leader-elect/--no-leader-elect", help="Elect a leader among several controllers with a Lease.")
    ] = True,
    lease_namespace: Annotated[
        str | None, typer.Option(help="Namespace of the Lease; default: the pod's or the kubeconfig's.")
    ] = None,
    lease_duration: Annotated[
        int, typer.Option(help="Seconds after which another controller may take over from a failed leader.")
    ] = 15,
    renew_deadline: Annotated[
        float,
        typer.Option(help="Seconds for which the leader retries renewing the Lease before it exits.", callback=finite_seconds),
    ] = 10,
    retry_period: Annotated[
        float, typer.Option(help="Seconds between tries to acquire or renew the Lease.", callback=finite_seconds)
    ] = 2,
    workers: Annotated[int, typer.Option(help="Number of TrainJobs reconciled concurrently.", min=1, max=64)] = 2,
    take_over_webhooks: Annotated[
        bool,
        typer.Option(
            "--take-over-webhooks",
            help="Remove the webhooks of a Trainer whose manager is gone, which refuse every TrainJob; see docs/controller.md.",
        ),
    ] = False,
    bind_address: Annotated[str, typer.Option(help="Address for metrics and health; 0.0.0.0 in a pod.")] = "127.0.0.1",
    metrics_port: Annotated[int, typer.Option(help="Port of /metrics (HTTP); 0 uses any free port.", min=0, max=65535)] = 8080,
    health_port: Annotated[
        int, typer.Option(help="Port of /healthz and /readyz (HTTP); 0 uses any free port.", min=0, max=65535)
    ] = 8081,
) -> None:
    """Run the TrainJob controller against a cluster with JobSet, until SIGTERM or SIGINT.

    Waits, not ready, while Trainer's own manager is active. Exit codes: 0 stopped by a signal; 1 cluster not usable or not reachable;
    2 invalid options; 3 port in use; 5 Lease lost; 6 a component ended unexpectedly.
    """
    from trainwright.cluster import connect
    from trainwright.trainer.standalone.leader_election import LeaderElectionConfig
    from trainwright.trainer.standalone.process import Options, run

    leader_election = LeaderElectionConfig(lease_duration, renew_deadline, retry_period)
    if leader_elect and (problem := leader_election.problem()):
        fail(f"--lease-duration, --renew-deadline, --retry-period: {problem}", BAD_INPUT)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    level = logging.DEBUG if os.environ.get("TRAINWRIGHT_DEBUG") else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    with cluster_errors_exit():
        cluster = connect(kubeconfig, context=context)
    options = Options(
        namespace=namespace,
        leader_election=leader_election if leader_elect else None,
        lease_namespace=lease_namespace or cluster.default_namespace,
        workers=workers,
        takes_over_webhooks=take_over_webhooks,
        address=bind_address,
        metrics_port=metrics_port,
        health_port=health_port,
    )
    raise typer.Exit(run(cluster, options, stop))
