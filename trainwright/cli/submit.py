"""`trainwright submit`: creates objects from manifests, or submits one training step from settings."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from trainwright.api import AdmissionContext, admit
from trainwright.api.errors import AlreadyExists, BadRequest, Invalid
from trainwright.api.kinds import TRAINJOB, kind_of
from trainwright.api.objects import Obj, described, name_of, namespace_of
from trainwright.cli.connection import HomeChoice, Kubeconfig, Namespace, SubmissionMode, jobs_cluster_for
from trainwright.cli.errors import bad_input_exits, cluster_errors_exit, one_line
from trainwright.cli.manifests import read_manifests
from trainwright.cli.output import Format, print_objects
from trainwright.cli.request_options import with_settings
from trainwright.cli.submit_step import DryRun, Submission, submit_step
from trainwright.cli.waiting import (
    NO_LIMIT,
    RANK_0,
    LogBytes,
    Logs,
    LogsOf,
    OnInterrupt,
    OnInterruptOption,
    QueueTimeout,
    RunTimeout,
    StartTimeout,
    Timeout,
    Wait,
    wait_and_report,
)
from trainwright.jobs.logs.live_logs import TOTAL_BYTES
from trainwright.jobs.request.manifest import with_resume
from trainwright.jobs.request.resume import AUTO, resume_problems, resume_warnings, validate_resume
from trainwright.migration import MigrationResult, is_legacy, migrate
from trainwright.runtimes import resolve_runtime
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.runtime_lookup import runtime_lookup

MaybeFiles = Annotated[
    list[str] | None, typer.Option("-f", "--filename", help="File with manifests, - for standard input; repeatable.")
]


def register(app: typer.Typer) -> None:
    app.command("submit")(with_settings(submit))


def submit(
    filename: MaybeFiles = None,
    run_id: Annotated[str, typer.Option(help="Name of the run; an existing run's job is adopted. Default: a new run.")] = "",
    resume: Annotated[str, typer.Option(help="auto, never, or the URI of an exported checkpoint to resume from.")] = AUTO,
    resume_secret: Annotated[
        str, typer.Option(help="Secret with credentials for reading that export (AWS_ACCESS_KEY_ID ...).")
    ] = "",
    dry_run: Annotated[
        DryRun, typer.Option(help="client: only validate locally; server: let the cluster validate, without creating anything.")
    ] = (DryRun.none),
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the jobs have succeeded; see docs/exit-codes.md.")] = False,
    logs: Logs = False,
    logs_of: LogsOf = RANK_0,
    log_bytes: LogBytes = TOTAL_BYTES,
    timeout: Timeout = NO_LIMIT,
    queue_timeout: QueueTimeout = NO_LIMIT,
    start_timeout: StartTimeout = NO_LIMIT,
    run_timeout: RunTimeout = NO_LIMIT,
    on_interrupt: OnInterruptOption = OnInterrupt.keep,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
    output: Annotated[Format | None, typer.Option("-o", "--output")] = None,
    settings: dict[str, Any] | None = None,
) -> None:
    """Create TrainJobs from manifests, or submit one from settings: a runtime, a function, code, or a manifest with settings.

    With --run-id or any setting the job is the step of a run: its name is derived from the run, running the command again adopts
    it, and after a failure resumes from its last checkpoint.
    """
    if settings or run_id or not filename:
        with bad_input_exits():
            if not (settings or filename):
                raise BadRequest("nothing to submit: use -f FILE, or settings such as --runtime, --code or --func")
        with cluster_errors_exit():
            wait_options = Wait.of(timeout, queue_timeout, start_timeout, run_timeout, logs, logs_of, log_bytes, on_interrupt)
            settings_given = {
                **(settings or {}),
                "resume": resume,
                "resume_secret": resume_secret,
                "queue_timeout_seconds": int(queue_timeout),
                "start_timeout_seconds": int(start_timeout),
                "run_timeout_seconds": int(run_timeout),
                "on_cancel": on_interrupt.value,
            }
            step = Submission(settings_given, filename or [], run_id, dry_run, wait, namespace, output)
            raise typer.Exit(submit_step(step, wait_options, lambda: jobs_cluster_for(kubeconfig, home, submission_mode)))
    with bad_input_exits():
        _check_resume(resume)
        documents = checked_documents(filename)
    with cluster_errors_exit():
        wait_options = Wait.of(timeout, queue_timeout, start_timeout, run_timeout, logs, logs_of, log_bytes, on_interrupt)
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode) if dry_run is not DryRun.client else None
        created = []
        for document in documents:
            if cluster is not None and document["kind"] == TRAINJOB.kind and resume != AUTO:
                space = namespace_of(document) or namespace or cluster.default_namespace
                document = _with_resume(cluster, document, space, resume, resume_secret)
            created.append(_create(cluster, document, namespace, dry_run))
            if output is None:
                print(f"{described(created[-1])} created{_DRY[dry_run]}")
        if wait and cluster is not None and dry_run is DryRun.none:
            codes = [wait_and_report(cluster, item, wait_options, output) for item in created if item["kind"] == TRAINJOB.kind]
            raise typer.Exit(next(filter(None, codes), 0))
    if output is not None:
        print_objects(created, output)


_DRY = {DryRun.none: "", DryRun.client: " (client dry run)", DryRun.server: " (server dry run)"}


def checked_documents(files: list[str]) -> list[Obj]:
    """Read, migrate and validate manifests with at least one TrainJob. Raises ApiError."""
    documents = _upgrade(read_manifests(files))
    for document in documents:  # unknown fields of a newer API version are left to the server
        admit(document, context=AdmissionContext(strictness="Ignore"))
    if not any(document["kind"] == TRAINJOB.kind for document in documents):
        raise BadRequest("kind: no TrainJob among the documents")
    return documents


def _upgrade(documents: list[Obj]) -> list[Obj]:
    """Migrate TrainJobs and runtimes of earlier versions; prints a line for each change."""
    migrated = [migrate(document) if is_legacy(document) else MigrationResult([document], []) for document in documents]
    for item in migrated:
        for note in item.notes:
            print(one_line(f"{name_of(item.objects[-1])}: {note}"), file=sys.stderr)
    return [obj for item in migrated for obj in item.objects]


def _check_resume(resume: str) -> None:
    try:
        validate_resume(resume)
    except ValueError as error:
        raise BadRequest(str(error)) from error


def _with_resume(cluster: JobsClient, document: Obj, namespace: str, resume: str, secret: str) -> Obj:
    """Return the TrainJob with a patch that sets where to resume. Raises RuntimeNotFound, and Invalid if its runtime cannot resume."""
    runtime = resolve_runtime(
        document["spec"]["runtimeRef"], runtime_lookup(cluster, namespace), bundled=cluster.uses_bundled_runtimes
    ).runtime
    if problems := list(resume_problems(resume, runtime)):
        raise Invalid.of("TrainJob", name_of(document), problems)
    for warning in resume_warnings(runtime, resume, attempt=1):
        print(one_line(f"{name_of(document)}: {warning}"), file=sys.stderr)
    return with_resume(document, runtime, resume=resume, secret=secret)


def _create(cluster: JobsClient | None, document: Obj, namespace: str, dry_run: DryRun) -> Obj:
    kind = kind_of(document)
    if kind is None or kind.namespaced:
        document["metadata"].setdefault("namespace", namespace or (cluster.default_namespace if cluster else "default"))
    if cluster is None:
        return document
    try:
        return cluster.create(document, dry_run=dry_run is DryRun.server)
    except AlreadyExists:
        raise AlreadyExists(
            f"{document['kind']} {name_of(document)!r} already exists; delete it or choose another name"
        ) from None
