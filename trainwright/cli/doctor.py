"""`trainwright doctor`: checks whether a job can run on the cluster, and suggests fixes.

Exit code 0 if a job can run, possibly with warnings; 1 if a requirement is missing; 2 for invalid input.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from trainwright.api.errors import ApiError
from trainwright.cli.cluster_checks import (
    check_access,
    check_admission,
    check_apis,
    check_cluster,
    check_controller,
    check_guard,
    check_mode,
    summarized_access,
)
from trainwright.cli.connection import HomeChoice, Kubeconfig, Namespace, SubmissionMode, require_connection, selected_cluster
from trainwright.cli.errors import FAILURE
from trainwright.cli.findings import Finding, Level, as_document, missing, overall_level
from trainwright.cli.job_checks import check_claim, check_pods, check_queue, check_runtimes, check_store
from trainwright.cli.output import Format, print_object
from trainwright.cluster import NoCluster
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.submission.connect import choose_client
from trainwright.submission.jobs_client import JobsClient, Mode, requested_mode
from trainwright.text.foreign_texts import one_line

_CONNECT = "check that the cluster is running and that the kubeconfig is correct; `trainwright up` starts a local cluster"
_STYLES = {Level.ok: "green", Level.warning: "yellow", Level.missing: "bold red"}


class DoctorFormat(enum.StrEnum):
    table = "table"
    json = "json"


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(
    runtime: Annotated[str, typer.Option(help="Runtime of the job.")] = "",
    claim: Annotated[str, typer.Option(help="PersistentVolumeClaim of the workspace.")] = "",
    queue: Annotated[str, typer.Option(help="Kueue LocalQueue of the job.")] = "",
    store: Annotated[str, typer.Option(help="Folder for exports, file:// or s3://; a small object is written and deleted.")] = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show each missing permission in a line with its rule.")] = False,
    output: Annotated[DoctorFormat, typer.Option("-o", "--output", help="Form of the output.")] = DoctorFormat.table,
) -> None:
    """Check what a job needs: permissions, APIs, a controller, runtime, queue, claim, store. Exit code 1 if it could not run."""
    findings: list[Finding] = []
    space, host = namespace, ""
    try:
        cluster = selected_cluster(kubeconfig, home)
        space, host = namespace or cluster.default_namespace, cluster.host
        require_connection(cluster, kubeconfig, home)
        findings += check_cluster(cluster, space)
    except (NoCluster, ApiError) as error:  # each check reports its own failure; the others still help
        findings.append(missing("cluster", host or "none", str(error), _CONNECT))
    else:
        findings += _run_checks(cluster, space, submission_mode, runtime, queue, claim)
    if store:
        findings.append(check_store(store))
    if output is DoctorFormat.json:
        print_object(as_document(findings, cluster=host, namespace=space), Format.json)
    else:
        _print(findings if verbose else summarized_access(findings, space))
    if overall_level(findings) is Level.missing:
        raise typer.Exit(FAILURE)


def _run_checks(
    cluster: KubernetesCluster, namespace: str, requested: Mode | None, runtime: str, queue: str, claim: str
) -> Iterator[Finding]:
    try:
        mode_asked = requested_mode(requested or "")
        client = choose_client(cluster, mode_asked, namespace=namespace)
        yield check_mode(client, mode_asked)
    except (NoCluster, ApiError) as error:
        yield missing("mode", "none", str(error), "see docs/submission.md")
        client = JobsClient(cluster)
    mode = client.mode
    yield from _run_check("access", lambda: check_access(cluster, namespace, mode))
    yield from _run_check("api", lambda: check_apis(cluster, mode))
    if mode is Mode.trainjob:
        yield from _run_check("controller", lambda: [check_controller(cluster, namespace)])
        yield from _run_check("admission", lambda: check_admission(cluster, namespace, runtime))
    yield from _run_check("guard", lambda: [check_guard(client, namespace)])
    yield from _run_check("runtime", lambda: check_runtimes(client, namespace, runtime))
    if runtime:
        yield from _run_check("pods", lambda: check_pods(client, namespace, runtime))
    yield from _run_check("queue", lambda: [check_queue(cluster, namespace, queue, mode=mode)])
    if claim:
        yield from _run_check("claim", lambda: [check_claim(cluster, namespace, claim, mode=mode)])


def _run_check(check: str, check_function: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings of one check. An ApiError is reported as a finding, so that the other checks still run."""
    try:
        yield from check_function()
    except ApiError as error:
        yield Finding(check, check, Level.warning, f"could not be checked: {error.message}", "try again, or ask an administrator")


def _print(findings: list[Finding]) -> None:
    """Print a table in a terminal, else plain lines."""
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        for each in findings:
            line = one_line(f"{each.subject}: {each.message}" + (f" -> {each.advice}" if each.advice else ""))
            print(f"{each.level.value:7}  {each.check:10}  {line}")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "CHECK", "SUBJECT", "FOUND", "WHAT TO DO"):
        table.add_column(column, overflow="fold")
    for each in findings:
        cells = map(one_line, (each.level.value, each.check, each.subject, each.message, each.advice))
        table.add_row(*cells, style=_STYLES[each.level])
    console.print(table)
