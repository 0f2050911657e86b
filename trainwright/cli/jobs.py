"""Commands on TrainJobs: submit, get, describe, wait, cancel, delete."""

from __future__ import annotations

import enum
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from trainwright.api import AdmissionContext, admit
from trainwright.api.errors import AlreadyExists, BadRequest, Invalid, NotFound
from trainwright.api.kinds import TRAINJOB, kind_of
from trainwright.api.objects import Obj, described, name_of, namespace_of
from trainwright.cli.connection import HomeChoice, Kubeconfig, Namespace, SubmissionMode, jobs_cluster_for
from trainwright.cli.manifests import read_manifests
from trainwright.cli.materialize import Files
from trainwright.cli.output import Format, ViewFormat, print_object, print_objects, print_table
from trainwright.cli.problems import FAILURE, bad_input_exits, cluster_errors_exit, fail, one_line
from trainwright.cluster import Cluster
from trainwright.cluster.runtime_lookup import runtime_lookup
from trainwright.cluster.submission_mode import Mode, choice_of
from trainwright.jobs import Deadlines, Phase, TrainJobError, delete_job, phase_of, wait_for
from trainwright.jobs import Progress as JobProgress
from trainwright.jobs.cancel import Became, Stopping, cancel_job
from trainwright.jobs.describe import description_of
from trainwright.jobs.manifest import resuming
from trainwright.jobs.progress_line import progress_line
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
    app.command("wait")(wait)
    app.command("cancel")(cancel)
    app.command("delete")(delete)


def submit(
    filename: Files,
    resume: Annotated[str, typer.Option(help="auto, never, or the URI of an exported checkpoint to go on from.")] = AUTO,
    resume_secret: Annotated[str, typer.Option(help="A Secret with what reads that export (AWS_ACCESS_KEY_ID ...).")] = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
    output: Annotated[Format | None, typer.Option("-o", "--output")] = None,
) -> None:
    """Create TrainJobs (and runtimes that stand before them) from manifests; the API's rules are checked first."""
    with bad_input_exits():
        _check_resume(resume)
        documents = _upgraded(read_manifests(filename))
        for document in documents:  # all of them, before the first is created; fields of a newer API are left to it
            admit(document, context=AdmissionContext(strictness="Ignore"))
        if not any(document["kind"] == "TrainJob" for document in documents):
            raise BadRequest("kind: no TrainJob among the documents")
    with cluster_errors_exit():
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
        created = []
        for document in documents:
            space = namespace or cluster.default_namespace
            if document["kind"] == "TrainJob" and resume != AUTO:
                document = _resuming(cluster, document, namespace_of(document) or space, resume, resume_secret)
            created.append(_create(cluster, document, space))
            if output is None:
                print(f"{described(created[-1])} created")
    if output is not None:
        print_objects(created, output)


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


def _resuming(cluster: Cluster, document: Obj, namespace: str, resume: str, secret: str) -> Obj:
    """The TrainJob told where to go on from. Raises RuntimeNotFound, and Invalid where its runtime cannot."""
    bundled = choice_of(cluster).mode is Mode.jobset
    runtime = resolve_runtime(document["spec"]["runtimeRef"], runtime_lookup(cluster, namespace), bundled=bundled).runtime
    if problems := list(resume_problems(resume, runtime)):
        raise Invalid.of("TrainJob", name_of(document), problems)
    for doubt in resume_doubts(runtime, resume, generation=1):
        print(one_line(f"{name_of(document)}: {doubt}"), file=sys.stderr)
    return resuming(document, runtime, resume=resume, secret=secret)


def _create(cluster: Cluster, document: Obj, namespace: str) -> Obj:
    kind = kind_of(document)
    if kind is None or kind.namespaced:
        document["metadata"].setdefault("namespace", namespace)
    try:
        return cluster.create(document)
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


def wait(
    name: Name,
    timeout: Annotated[float, typer.Option(help="Seconds; 0 waits for ever.", min=0)] = 0,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
) -> None:
    """Wait until a TrainJob has succeeded. Exit code 1 when it fails, with a report of why."""
    limit = timeout or None
    with cluster_errors_exit():
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
        trainjob = cluster.get(TRAINJOB, name, namespace or cluster.default_namespace)
        try:
            with _progress_shown(Console(stderr=True)) as show:
                wait_for(cluster, trainjob, deadlines=Deadlines(limit, limit, limit), on_progress=show)
        except TrainJobError as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(FAILURE) from error
    print(f"TrainJob {namespace_of(trainjob)}/{name} {Phase.Succeeded.value}")


class _progress_shown:  # noqa: N801  (used as a function)
    """A progress bar in a terminal, lines elsewhere."""

    def __init__(self, console: Console):
        self._console = console
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> _progress_shown:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def __call__(self, progress: JobProgress) -> None:
        line = progress_line(progress)
        if not self._console.is_terminal:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
        elif progress.percent is None:
            self._bar.update(self._task, description=line)
        else:
            self._bar.update(self._task, description=line, total=100, completed=progress.percent)


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
