"""`trainwright logs`: prints the logs of a TrainJob's pods."""

from __future__ import annotations

import collections
import itertools
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from trainwright.api.kinds import TRAINJOB
from trainwright.api.phase import verdict_of
from trainwright.api.times import is_moment, rfc3339
from trainwright.cli.connection import HomeChoice, Kubeconfig, Namespace, SubmissionMode, jobs_cluster_for
from trainwright.cli.errors import BAD_INPUT, cluster_errors_exit, fail
from trainwright.cli.output import is_terminal, print_lines
from trainwright.jobs.logs.follow_logs import follow_logs
from trainwright.jobs.logs.log_options import Budget, LogLine, LogSelector
from trainwright.jobs.logs.read_logs import read_logs
from trainwright.jobs.state.pods import check_own_pods, pods_of
from trainwright.jobs.wait.waiting import is_shown
from trainwright.text.foreign_texts import with_colours_only

_AGO = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_MOST_HIDDEN = 200
"""Lines at the end of a log that are not shown: an encoded result and history."""
_BUDGET = Budget(pending_lines=64)
"""Few lines are read ahead, since each may be long."""
_UNIT = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def register(app: typer.Typer) -> None:
    app.command("logs")(logs)


def logs(
    name: Annotated[str, typer.Argument(help="Name of the TrainJob.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Follow the logs until the TrainJob ends.")] = False,
    step: Annotated[
        str, typer.Option(help="Replicated job: node, launcher, dataset-initializer ... Default: the training's.")
    ] = "",
    rank: Annotated[int, typer.Option("--rank", "--index", help="Rank of the node.", min=0)] = 0,
    all_ranks: Annotated[bool, typer.Option("--all", help="All ranks; each line starts with its source.")] = False,
    previous: Annotated[bool, typer.Option(help="Logs from before the container's last restart.")] = False,
    since: Annotated[
        str, typer.Option(help="Only lines since then: 30s, 10m, 2h, 1d, or a time such as 2026-01-31T12:00:00Z.")
    ] = "",
    tail: Annotated[int | None, typer.Option(help="Number of last lines of each pod.", min=0)] = None,
    timestamps: Annotated[bool, typer.Option(help="Start each line with its timestamp.")] = False,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
) -> None:
    """Print the log of rank 0 of a step, of another rank, or of all.

    In a terminal, colours are shown, other control sequences dropped, and lines longer than 64 KiB cut. A file or a pipe gets the
    bytes of the log as they are, except lines longer than 4 MiB, which are cut, and encoded results.
    """
    if follow and previous:
        fail("--previous cannot be followed, since that container has ended", BAD_INPUT)
    read_lines = None if tail is None else tail + _MOST_HIDDEN
    is_exact = not is_terminal()
    selector = LogSelector(step, None if all_ranks else rank, _since_time(since), tail if follow else read_lines, is_exact)
    with cluster_errors_exit():
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
        trainjob = cluster.get(TRAINJOB, name, namespace or cluster.default_namespace)
        check_own_pods(cluster, trainjob)
        if (verdict := verdict_of(trainjob)) is not None and not pods_of(cluster, trainjob):
            # with the pods, their logs are gone
            print_lines(f"the pods of TrainJob {name} were deleted when it was given up; these were the last lines:", error=True)
            for text in (*(text for pod in verdict.pods for text in (f"[{pod.name}]", *pod.lines)), *verdict.lines):
                print(with_colours_only(text), flush=True)
            return
        lines: Iterator[LogLine] = (
            follow_logs(cluster, trainjob, selector, _BUDGET)
            if follow
            else read_logs(cluster, trainjob, selector, previous=previous)
        )
        lines = filter(is_shown, lines)
        if tail is not None and not follow:
            lines = _last_of_each(lines, tail)
        for line in lines:
            stamp = f"{line.stamp} " if timestamps and line.stamp else ""
            source = f"[{line.source}] " if all_ranks and line.source else ""
            text = f"{source}{stamp}{line.text}"
            if is_exact:
                sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape") + b"\n")
                sys.stdout.flush()
            else:
                print(with_colours_only(text), flush=True)


def _last_of_each(lines: Iterator[LogLine], count: int) -> Iterator[LogLine]:
    """Yield the last `count` lines of each source; those of a source follow each other."""
    for _, own in itertools.groupby(lines, key=lambda line: line.source):
        yield from collections.deque(own, maxlen=count)


def _since_time(since: str) -> str:
    """Return the RFC 3339 time of an age or a time."""
    if not since or is_moment(since):  # as the API server takes it
        return since
    match = _AGO.fullmatch(since)
    if match is None:
        fail(f"--since: {since!r} is neither an age (30s, 10m, 2h, 1d) nor a time (2026-01-31T12:00:00Z)", BAD_INPUT)
    try:
        return rfc3339(datetime.now(UTC) - timedelta(**{_UNIT[match[2]]: int(match[1])}))
    except OverflowError:
        return ""  # before any log
