"""Commands on TrainJobs: get, describe, cancel, delete."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.api.phase import Phase
from trainwright.cli.connection import HomeChoice, Kubeconfig, Namespace, SubmissionMode, jobs_cluster_for
from trainwright.cli.errors import cluster_errors_exit, fail
from trainwright.cli.output import ViewFormat, print_lines, print_object, print_table
from trainwright.cli.waiting import finite_seconds
from trainwright.jobs import delete_job, phase_of
from trainwright.jobs.diagnosis.report import last_seen
from trainwright.jobs.state.cancel import CancelOutcome, CancelPolicy, cancel_job
from trainwright.jobs.state.describe import description_of
from trainwright.runtimes import RuntimeNotFound
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.runtime_lookup import resolve_in_cluster


class CancelMode(enum.StrEnum):
    """How a job is cancelled."""

    suspend = "suspend"
    delete = "delete"


Name = Annotated[str, typer.Argument(help="Name of the TrainJob.")]


def register(app: typer.Typer) -> None:
    app.command("get")(get)
    app.command("describe")(describe)
    app.command("cancel")(cancel)
    app.command("delete")(delete)


def get(
    name: Annotated[str, typer.Argument(help="Name of a TrainJob; default: all.")] = "",
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="In all namespaces.")] = False,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
    output: Annotated[ViewFormat, typer.Option("-o", "--output", help="Form of the output.")] = ViewFormat.table,
) -> None:
    """Show TrainJobs with their phase and progress."""
    with cluster_errors_exit():
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
        space = namespace or cluster.default_namespace
        jobs = [cluster.get(TRAINJOB, name, space)] if name else cluster.list(TRAINJOB, None if all_namespaces else space).items
    if output is not ViewFormat.table:
        print_object(jobs[0] if name else {"apiVersion": "v1", "kind": "List", "items": jobs}, output)
        return
    where = "any namespace" if all_namespaces else f"the namespace {space}"
    print_table(
        ("NAMESPACE", "NAME", "PHASE", "PROGRESS", "RUNTIME", "NODES", "CREATED"),
        [_row(job, nodes) for job, nodes in zip(jobs, _numbers_of_nodes(cluster, jobs), strict=True)],
        empty=f"no TrainJobs in {where}",
    )


def _numbers_of_nodes(cluster: JobsClient, jobs: list[Obj]) -> list[str]:
    """Return the number of nodes of each job: its own, else that of its runtime; empty if that cannot be read."""
    of_runtimes: dict[tuple[str, str, str], str] = {}
    found = []
    for job in jobs:
        own = (job["spec"].get("trainer") or {}).get("numNodes")
        reference = job["spec"]["runtimeRef"]
        key = (namespace_of(job), str(reference.get("kind")), str(reference["name"]))
        if not own and key not in of_runtimes:
            of_runtimes[key] = _nodes_of_runtime(cluster, reference, namespace_of(job))
        found.append(str(own) if own else of_runtimes[key])
    return found


def _nodes_of_runtime(cluster: JobsClient, reference: Obj, namespace: str) -> str:
    try:
        found = resolve_in_cluster(cluster, reference, namespace, bundled=cluster.uses_bundled_runtimes)
    except (RuntimeNotFound, ApiError):  # the list shows the job without this column
        return ""
    return str((found.runtime["spec"].get("mlPolicy") or {}).get("numNodes") or 1)


def _row(job: Obj, nodes: str) -> tuple[str, ...]:
    percent = ((job.get("status") or {}).get("trainerStatus") or {}).get("progressPercentage")
    return (
        namespace_of(job),
        name_of(job),
        phase_of(job).value,
        f"{percent} %" if percent is not None else "",
        job["spec"]["runtimeRef"]["name"],
        nodes,
        job["metadata"].get("creationTimestamp", ""),
    )


def describe(
    name: Name,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
) -> None:
    """Show one TrainJob with its steps, pods and events."""
    with cluster_errors_exit():
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
        trainjob = cluster.get(TRAINJOB, name, namespace or cluster.default_namespace)
        print_lines(description_of(cluster, trainjob, waiting=_waiting(cluster, trainjob)))


def _waiting(cluster: JobsClient, trainjob: Obj) -> str:
    """Return why a job makes no progress, and what to do; empty if it runs, has ended, or nothing says so."""
    if phase_of(trainjob).is_final or phase_of(trainjob) is Phase.Running:  # it does not wait
        return ""
    reason = last_seen(cluster, trainjob)[1]
    return "" if reason is None else f"{reason.text}; {reason.advice}" if reason.advice else reason.text


def cancel(
    name: Name,
    by: Annotated[
        CancelMode, typer.Option(help="suspend: checkpoints are kept, and the job can be resumed. delete: the job is deleted.")
    ] = (CancelMode.suspend),
    wait: Annotated[float, typer.Option(help="Seconds to wait for its pods to end.", min=0, callback=finite_seconds)] = 60,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
) -> None:
    """Suspend a TrainJob: its pods end, its checkpoints are kept; `kubectl patch` or the same pipeline step resumes it."""
    with cluster_errors_exit():
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
        trainjob = cluster.get(TRAINJOB, name, namespace or cluster.default_namespace)
        if phase_of(trainjob).is_final:
            fail(f"TrainJob {name} has already ended: {phase_of(trainjob).value}")
        already = by is CancelMode.suspend and trainjob["spec"].get("suspend")
        result = cancel_job(cluster, trainjob, CancelPolicy(by.value), timeout_seconds=wait)
        if result.outcome in (CancelOutcome.gone, CancelOutcome.ended):
            fail(f"TrainJob {name}: {result.outcome.value}")
    if result.pods_message():
        fail(f"TrainJob {name} {result.outcome.name}, but after {wait:g} s {result.pods_message()}")
    until = f"; {result.deletion_message()}" if result.deletion_message() else ""
    print_lines((f"TrainJob {name} is already suspended" if already else f"TrainJob {name} {result.outcome.name}") + until)


def delete(
    name: Name,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
) -> None:
    """Delete a TrainJob with everything that it owns."""
    with cluster_errors_exit():
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
        trainjob = cluster.get(TRAINJOB, name, namespace or cluster.default_namespace)
        if not delete_job(cluster, trainjob):
            raise NotFound(f"TrainJob {name} no longer exists")
    print_lines(f"TrainJob {name} deleted")
