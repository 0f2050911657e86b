"""`trainwright logs`: what the pods of a TrainJob print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from trainwright.api.kinds import TRAINJOB
from trainwright.api.times import is_moment, rfc3339
from trainwright.cli.connection import HomeChoice, Kubeconfig, Namespace, SubmissionMode, jobs_cluster_for
from trainwright.cli.errors import BAD_INPUT, cluster_errors_exit, fail
from trainwright.jobs.logs.log_line import LogLine
from trainwright.jobs.logs.read_logs import LogSelector, follow_logs, read_logs

_AGO = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_UNIT = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def register(app: typer.Typer) -> None:
    app.command("logs")(logs)


def logs(
    name: Annotated[str, typer.Argument(help="Name of the TrainJob.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the TrainJob has ended.")] = False,
    step: Annotated[str, typer.Option(help="Replicated job: node, dataset-initializer, model-initializer ...")] = "node",
    rank: Annotated[int, typer.Option("--rank", "--index", help="The node with this rank.", min=0)] = 0,
    every: Annotated[bool, typer.Option("--all", help="All ranks; each line begins with its own.")] = False,
    previous: Annotated[bool, typer.Option(help="The run of the container before its last restart.")] = False,
    since: Annotated[str, typer.Option(help="Only lines since then: 30s, 10m, 2h, 1d, or a time as 2026-01-31T12:00:00Z.")] = "",
    tail: Annotated[int | None, typer.Option(help="Only the last lines of each pod.", min=0)] = None,
    timestamps: Annotated[bool, typer.Option(help="Begin each line with its time.")] = False,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
) -> None:
    """Print the log of rank 0 of a step, of another rank, or of all."""
    if follow and previous:
        fail("--previous is over already: it cannot be followed", BAD_INPUT)
    wanted = LogSelector(step, None if every else rank, _moment(since), tail)
    with cluster_errors_exit():
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
        trainjob = cluster.get(TRAINJOB, name, namespace or cluster.default_namespace)
        lines: Iterator[LogLine] = (
            follow_logs(cluster, trainjob, wanted) if follow else read_logs(cluster, trainjob, wanted, previous=previous)
        )
        for line in lines:
            stamp = f"{line.stamp} " if timestamps and line.stamp else ""
            source = f"[{line.source}] " if every and line.source else ""
            print(f"{source}{stamp}{line.text}", flush=True)


def _moment(since: str) -> str:
    """RFC 3339 for an age or a time."""
    if not since or is_moment(since):
        return since
    match = _AGO.fullmatch(since)
    if match is None:
        fail(f"--since: {since!r} is neither an age (30s, 10m, 2h, 1d) nor a time (2026-01-31T12:00:00Z)", BAD_INPUT)
    try:
        return rfc3339(datetime.now(UTC) - timedelta(**{_UNIT[match[2]]: int(match[1])}))
    except OverflowError:
        return ""  # before there were logs
