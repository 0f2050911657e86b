"""`trainwright guard`: ends the jobs that nobody waits for any more, on a cluster with Kubeflow Pipelines."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import Annotated

import typer

from trainwright.cli.connection import Kubeconfig, SubmissionMode
from trainwright.cli.errors import BAD_INPUT, cluster_errors_exit, fail
from trainwright.submission.jobs_client import Mode


def register(app: typer.Typer) -> None:
    app.command("guard")(guard)


def guard(
    kubeconfig: Kubeconfig = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig; default: its current context.")] = None,
    namespace: Annotated[str | None, typer.Option("-n", "--namespace", help="Guard only this namespace; default: all.")] = None,
    lease_namespace: Annotated[
        str | None, typer.Option(help="Namespace of the Lease without --namespace; default: the pod's or the kubeconfig's.")
    ] = None,
    submission_mode: SubmissionMode = None,
) -> None:
    """Suspend or delete jobs, as their on_cancel says, when nobody waits for them any more; until SIGTERM or SIGINT.

    A job is left behind when the run of its step has ended or was deleted, or when the lease of its waiting client has expired.
    """
    from trainwright.cluster import connect
    from trainwright.trainer.standalone.guard import GuardOptions, run

    mode = submission_mode or Mode.auto
    if mode is Mode.embedded:
        fail("--submission-mode: an embedded cluster needs no guard; use auto, trainjob or jobset", BAD_INPUT)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    level = logging.DEBUG if os.environ.get("TRAINWRIGHT_DEBUG") else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    with cluster_errors_exit():
        cluster = connect(kubeconfig, context=context)
    if problem := run(cluster, GuardOptions(namespace, lease_namespace or cluster.default_namespace, mode), stop):
        fail(problem)
