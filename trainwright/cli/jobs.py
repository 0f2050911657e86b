"""Commands on TrainJobs: submit, get, describe, cancel, delete."""

from __future__ import annotations

import enum
import sys
from typing import Annotated

import typer

from trainwright.api import AdmissionContext, admit
from trainwright.api.errors import AlreadyExists, BadRequest, Invalid, NotFound
from trainwright.api.kinds import TRAINJOB, kind_of
from trainwright.api.objects import Obj, described, name_of, namespace_of
from trainwright.cli.connection import HomeChoice, Kubeconfig, Namespace, SubmissionMode, jobs_cluster_for
from trainwright.cli.manifests import read_manifests
from trainwright.cli.materialize import Files
from trainwright.cli.output import Format, ViewFormat, print_object, print_objects, print_table
from trainwright.cli.problems import bad_input_exits, cluster_errors_exit, fail, one_line
from trainwright.cli.waiting import (
    NO_LIMIT,
    RANK_0,
    Leaving,
    LogBytes,
    Logs,
    LogsOf,
    OnLeave,
    QueueTimeout,
    RunTimeout,
    StartTimeout,
    Timeout,
    Wait,
    waited_for,
)
from trainwright.cluster.runtime_lookup import runtime_lookup
from trainwright.cluster.submission_mode import JobsCluster, Mode, choice_of
from trainwright.jobs import delete_job, phase_of
from trainwright.jobs.cancel import Became, Stopping, cancel_job
from trainwright.jobs.describe import description_of
from trainwright.jobs.live_logs import TOTAL_BYTES
from trainwright.jobs.manifest import resuming
from trainwright.jobs.resume import AUTO, checked_resume, resume_doubts, resume_problems
from trainwright.migration import Migrated, is_early, migrate
from trainwright.runtimes import resolve_runtime


class Cancelling(enum.StrEnum):
    """How a person stops a job."""

    suspend = "suspend"
    delete = "delete"


Name = Annotated[str, typer.Argument(help="Name of the TrainJob.")]


def register(app: typer.Typer) -> None:
    app.command("submit")(submit)
    app.command("get")(get)
    app.command("describe")(describe)
    app.command("cancel")(cancel)
    app.command("delete")(delete)


class DryRun(enum.StrEnum):
    """How far a submission goes."""

    none = "none"
    client = "client"
    server = "server"


def submit(
    filename: Files,
    resume: Annotated[str, typer.Option(help="auto, never, or the URI of an exported checkpoint to go on from.")] = AUTO,
    resume_secret: Annotated[str, typer.Option(help="A Secret with what reads that export (AWS_ACCESS_KEY_ID ...).")] = "",
    dry_run: Annotated[DryRun, typer.Option(help="client: only check; server: let the cluster check, and make nothing.")] = (
        DryRun.none
    ),
    wait: Annotated[bool, typer.Option("--wait", help="Wait until they have succeeded; see docs/exit-codes.md.")] = False,
    logs: Logs = False,
    logs_of: LogsOf = RANK_0,
    log_bytes: LogBytes = TOTAL_BYTES,
    timeout: Timeout = NO_LIMIT,
    queue_timeout: QueueTimeout = NO_LIMIT,
    start_timeout: StartTimeout = NO_LIMIT,
    run_timeout: RunTimeout = NO_LIMIT,
    stopping: OnLeave = Leaving.keep,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
    output: Annotated[Format | None, typer.Option("-o", "--output")] = None,
) -> None:
    """Create TrainJobs (and runtimes that stand before them) from manifests; the API's rules are checked first."""
    with bad_input_exits():
        _check_resume(resume)
        documents = checked_documents(filename)
    with cluster_errors_exit():
        how = Wait.of(timeout, queue_timeout, start_timeout, run_timeout, logs, logs_of, log_bytes, stopping)
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode) if dry_run is not DryRun.client else None
        created = []
        for document in documents:
            if cluster is not None and document["kind"] == TRAINJOB.kind and resume != AUTO:
                space = namespace_of(document) or namespace or cluster.default_namespace
                document = _resuming(cluster, document, space, resume, resume_secret)
            created.append(_create(cluster, document, namespace, dry_run))
            if output is None:
                print(f"{described(created[-1])} created{_DRY[dry_run]}")
        if wait and cluster is not None and dry_run is DryRun.none:
            codes = [waited_for(cluster, one, how, output) for one in created if one["kind"] == TRAINJOB.kind]
            raise typer.Exit(next(filter(None, codes), 0))
    if output is not None:
        print_objects(created, output)


_DRY = {DryRun.none: "", DryRun.client: " (client dry run)", DryRun.server: " (server dry run)"}


def checked_documents(files: list[str]) -> list[Obj]:
    """The documents of manifests in today's form, a TrainJob among them. Raises ApiError before the first is created."""
    documents = _upgraded(read_manifests(files))
    for document in documents:  # fields of a newer API are left to it
        admit(document, context=AdmissionContext(strictness="Ignore"))
    if not any(document["kind"] == TRAINJOB.kind for document in documents):
        raise BadRequest("kind: no TrainJob among the documents")
    return documents


def _upgraded(documents: list[Obj]) -> list[Obj]:
    """TrainJobs and runtimes of earlier versions in today's form, with a line for what was changed."""
    migrated = [migrate(document) if is_early(document) else Migrated([document], []) for document in documents]
    for one in migrated:
        for note in one.notes:
            print(one_line(f"{name_of(one.objects[-1])}: {note}"), file=sys.stderr)
    return [obj for one in migrated for obj in one.objects]


def _check_resume(resume: str) -> None:
    try:
        checked_resume(resume)
    except ValueError as error:
        raise BadRequest(str(error)) from error


def _resuming(cluster: JobsCluster, document: Obj, namespace: str, resume: str, secret: str) -> Obj:
    """The TrainJob told where to go on from. Raises RuntimeNotFound, and Invalid where its runtime cannot."""
    bundled = choice_of(cluster).mode is Mode.jobset
    runtime = resolve_runtime(document["spec"]["runtimeRef"], runtime_lookup(cluster, namespace), bundled=bundled).runtime
    if problems := list(resume_problems(resume, runtime)):
        raise Invalid.of("TrainJob", name_of(document), problems)
    for doubt in resume_doubts(runtime, resume, generation=1):
        print(one_line(f"{name_of(document)}: {doubt}"), file=sys.stderr)
    return resuming(document, runtime, resume=resume, secret=secret)


def _create(cluster: JobsCluster | None, document: Obj, namespace: str, dry_run: DryRun) -> Obj:
    kind = kind_of(document)
    if kind is None or kind.namespaced:
        document["metadata"].setdefault("namespace", namespace or (cluster.default_namespace if cluster else "default"))
    if cluster is None:
        return document
    try:
        return cluster.create(document, dry_run=dry_run is DryRun.server)
    except AlreadyExists:
        raise AlreadyExists(
            f"{document['kind']} {name_of(document)!r} exists already; delete it or choose another name"
        ) from None


def get(
    name: Annotated[str, typer.Argument(help="One TrainJob; empty lists all.")] = "",
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces")] = False,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
    output: Annotated[ViewFormat, typer.Option("-o", "--output")] = ViewFormat.table,
) -> None:
    """Show TrainJobs with their phase and progress."""
    with cluster_errors_exit():
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
        space = namespace or cluster.default_namespace
        jobs = [cluster.get(TRAINJOB, name, space)] if name else cluster.list(TRAINJOB, None if all_namespaces else space).items
    if output is not ViewFormat.table:
        print_object(jobs[0] if name else {"apiVersion": "v1", "kind": "List", "items": jobs}, output)
        return
    print_table(("NAMESPACE", "NAME", "PHASE", "PROGRESS", "RUNTIME", "NODES", "CREATED"), map(_row, jobs))


def _row(job: Obj) -> tuple[str, ...]:
    percent = ((job.get("status") or {}).get("trainerStatus") or {}).get("progressPercentage")
    nodes = (job["spec"].get("trainer") or {}).get("numNodes")
    return (
        namespace_of(job),
        name_of(job),
        phase_of(job).value,
        f"{percent} %" if percent is not None else "",
        job["spec"]["runtimeRef"]["name"],
        str(nodes or ""),
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
        print(description_of(cluster, cluster.get(TRAINJOB, name, namespace or cluster.default_namespace)))


def cancel(
    name: Name,
    by: Annotated[Cancelling, typer.Option(help="suspend: its checkpoints stay, and it can be resumed. delete: all of it.")] = (
        Cancelling.suspend
    ),
    wait: Annotated[float, typer.Option(help="Seconds to wait until its pods are gone.", min=0)] = 60,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
) -> None:
    """Suspend a TrainJob: its pods end, its checkpoints stay; `kubectl patch` or the same pipeline step resumes it."""
    with cluster_errors_exit():
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
        trainjob = cluster.get(TRAINJOB, name, namespace or cluster.default_namespace)
        if phase_of(trainjob).is_final:
            fail(f"TrainJob {name} has ended already: {phase_of(trainjob).value}")
        already = by is Cancelling.suspend and trainjob["spec"].get("suspend")
        stopped = cancel_job(cluster, trainjob, Stopping(by.value), within=wait)
        if stopped.became in (Became.gone, Became.ended):
            fail(f"TrainJob {name}: {stopped.became.value}")
    if stopped.left():
        fail(f"TrainJob {name} {stopped.became.name}, but after {wait:g} s {stopped.left()}")
    print(f"TrainJob {name} is suspended already" if already else f"TrainJob {name} {stopped.became.name}")


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
            raise NotFound(f"TrainJob {name} is gone already")
    print(f"TrainJob {name} deleted")
