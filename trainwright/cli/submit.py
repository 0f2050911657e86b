"""`trainwright submit`: creates objects from manifests, or submits one training step from settings."""

from __future__ import annotations

import logging
import sys
from typing import Annotated, Any

import typer

from trainwright.api.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid, Undecodable
from trainwright.api.kinds import TRAINJOB, kind_of
from trainwright.api.objects import Obj, described, name_of, namespace_of
from trainwright.cli.connection import HomeChoice, Kubeconfig, Namespace, SubmissionMode, jobs_cluster_for
from trainwright.cli.errors import WarningPrinter, bad_input_exits, cluster_errors_exit
from trainwright.cli.help_pages import OptionsByGroup
from trainwright.cli.manifests import (
    RUNTIME_MISSING,
    Validate,
    ValidateOption,
    checked_documents,
    dry_run_create,
    has_unknown_fields,
    reject_literal_secrets,
    runtime_among,
    with_field_hints,
)
from trainwright.cli.output import Format, print_lines, print_objects
from trainwright.cli.request_options import in_options, with_settings
from trainwright.cli.submit_step import DryRun, SubmitOptions, submit_step
from trainwright.cli.waiting import (
    NO_LIMIT,
    RANK_0,
    START_LIMIT,
    FailIfStuck,
    FailOnDivergence,
    LogBytes,
    Logs,
    LogsOf,
    LostNodeTimeout,
    OnInterrupt,
    OnInterruptOfOwnJob,
    QueueTimeout,
    RunTimeoutOfStep,
    StartTimeout,
    Timeout,
    interruptible,
    limits,
    log_options,
    wait_and_report,
)
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs import Waiting
from trainwright.jobs.logs.log_options import TOTAL_BYTES
from trainwright.jobs.manifest.resume_patch import resume_problems, resume_warnings
from trainwright.jobs.manifest.trainjob_manifest import with_resume
from trainwright.jobs.request.workspace import AUTO, validate_resume
from trainwright.jobs.submit.create_object import LostAnswer, create_object
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.runtimes import RuntimeNotFound
from trainwright.submission.jobs_client import JobsClient, requested_mode
from trainwright.submission.runtime_lookup import resolve_in_cluster
from trainwright.text.foreign_texts import one_line

MaybeFiles = Annotated[
    list[str] | None,
    typer.Option("-f", "--filename", metavar="FILE", help="File with manifests, - for standard input; repeatable."),
]


log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    app.command("submit", cls=OptionsByGroup)(with_settings(submit))


def submit(
    filename: MaybeFiles = None,
    run_id: Annotated[
        str, typer.Option(help="Name of the run: its job is adopted, unless it was seen to succeed. Default: a new run.")
    ] = "",
    resume: Annotated[
        str, typer.Option(help="auto, last, never, the URI of an exported checkpoint to resume from, or weights:URI.")
    ] = AUTO,
    resume_secret: Annotated[
        str, typer.Option(help="Secret with credentials for reading that export (AWS_ACCESS_KEY_ID ...).")
    ] = "",
    dry_run: Annotated[
        DryRun, typer.Option(help="client: only validate locally; server: let the cluster validate, without creating anything.")
    ] = (DryRun.none),
    validate: ValidateOption = Validate.strict,
    allow_literal_secrets: Annotated[
        bool,
        typer.Option(
            "--allow-literal-secrets", help="Submit manifests of -f that contain credentials; everyone who reads them can."
        ),
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the jobs have succeeded; see docs/exit-codes.md.")] = False,
    logs: Logs = False,
    logs_of: LogsOf = RANK_0,
    log_bytes: LogBytes = TOTAL_BYTES,
    tracking: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOOL[:ADDRESS]",
            help="With --wait: where metrics go, mlflow, wandb or tensorboard; repeatable.",
        ),
    ] = None,
    timeout: Timeout = NO_LIMIT,
    queue_timeout: QueueTimeout = NO_LIMIT,
    start_timeout: StartTimeout = START_LIMIT,
    run_timeout: RunTimeoutOfStep = None,
    fail_if_stuck: FailIfStuck = True,
    fail_on_divergence: FailOnDivergence = True,
    lost_node_timeout: LostNodeTimeout = NO_LIMIT,
    on_interrupt: OnInterruptOfOwnJob = None,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
    output: Annotated[Format | None, typer.Option("-o", "--output", help="Form of the output.")] = None,
    settings: dict[str, Any] | None = None,
) -> None:
    """Create TrainJobs from manifests, or submit one from settings: a runtime, a function, code, or a manifest with settings.

    With --run-id or any setting the job is the step of a run: its name is derived from the run, running the command again adopts
    it, and after a failure resumes from its last checkpoint.
    """

    def waiting() -> Waiting:
        settings = WaitSettings(
            fail_if_stuck,
            lost_node_timeout or None,
            fail_on_divergence=fail_on_divergence,
            deadlines=limits(queue_timeout, start_timeout, run_timeout or NO_LIMIT, timeout),
            logs=log_options(logs, logs_of, log_bytes),
        )
        return interruptible(settings, on_interrupt or OnInterrupt.keep, on_interrupt or OnInterrupt.suspend)

    with cluster_errors_exit():
        requested_mode(submission_mode or "")  # a client dry run checks it, too
    if settings or run_id or tracking or not filename:
        with bad_input_exits():
            if not (settings or filename):
                raise BadRequest("nothing to submit: use -f FILE, or settings such as --runtime, --code or --func")
            if validate is not Validate.strict:
                raise BadRequest(f"--validate {validate}: with settings or --run-id a manifest is always validated strictly")
            if allow_literal_secrets:
                raise BadRequest("--allow-literal-secrets: settings, and manifests with settings or --run-id, cannot contain any")
        with cluster_errors_exit(in_options):
            how = waiting()
            settings_given = {
                **(settings or {}),
                "resume": resume,
                "resume_secret": resume_secret,
                "queue_timeout_seconds": int(queue_timeout),
                "start_timeout_seconds": int(start_timeout),
                "run_timeout_seconds": None if run_timeout is None else int(run_timeout),
                "fail_if_stuck": fail_if_stuck,
                "fail_on_divergence": fail_on_divergence,
                "lost_node_timeout_seconds": int(lost_node_timeout),
                "on_cancel": (on_interrupt or OnInterrupt.keep).value,
            }
            step = SubmitOptions(settings_given, filename or [], run_id, dry_run, wait, namespace, output, tracking or ())
            raise typer.Exit(submit_step(step, how, lambda: jobs_cluster_for(kubeconfig, home, submission_mode)))
    printer = WarningPrinter()
    with bad_input_exits():
        try:
            validate_resume(resume)
        except ValueError as error:
            raise BadRequest(str(error)) from error
        documents = checked_documents(filename, printer, validate.field_validation if dry_run is DryRun.client else "Ignore")
        if not allow_literal_secrets:
            reject_literal_secrets(documents)
    with cluster_errors_exit():
        how = waiting()
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode) if dry_run is not DryRun.client else None
        default_namespace = namespace or (cluster.default_namespace if cluster is not None else "default")
        for document in documents:
            kind = kind_of(document)
            if kind is None or kind.namespaced:
                document["metadata"].setdefault("namespace", default_namespace)
        if cluster is not None and validate is Validate.strict:
            _check_unknown_fields(cluster, documents, printer)
        created: list[Obj] = []
        for document in documents:
            if cluster is not None and document["kind"] == TRAINJOB.kind and resume != AUTO:
                document = _with_resume(cluster, document, created, resume, resume_secret)
            created.append(document if cluster is None else _create(cluster, document, created, dry_run, validate, printer))
            if output is None:
                print_lines(f"{described(created[-1])} created{_DRY[dry_run]}")
        if wait and cluster is not None and dry_run is DryRun.none:
            codes = [wait_and_report(cluster, item, how, output) for item in created if item["kind"] == TRAINJOB.kind]
            raise typer.Exit(next(filter(None, codes), 0))
    if output is not None:
        print_objects(created, output)


_DRY = {DryRun.none: "", DryRun.client: " (client dry run)", DryRun.server: " (server dry run)"}


def _with_resume(cluster: JobsClient, document: Obj, earlier: list[Obj], resume: str, secret: str) -> Obj:
    """Return the TrainJob with a patch that sets where to resume. Raises RuntimeNotFound, and Invalid if its runtime cannot resume."""
    runtime = runtime_among(earlier, document)
    if runtime is None:
        reference, bundled = document["spec"]["runtimeRef"], cluster.uses_bundled_runtimes
        runtime = resolve_in_cluster(RetryingCluster(cluster), reference, namespace_of(document), bundled=bundled).runtime
    if problems := list(resume_problems(resume, runtime)):
        raise Invalid.of("TrainJob", name_of(document), problems)
    for warning in resume_warnings(runtime, resume, attempt=1):
        print(one_line(f"{name_of(document)}: {warning}"), file=sys.stderr)
    return with_resume(document, runtime, resume=resume, secret=secret)


def _known_runtimes(cluster: JobsClient, document: Obj) -> str:
    """Return the message about a runtime that does not exist, which lists those that do; "" if it exists, or cannot be read."""
    try:
        resolve_in_cluster(cluster, document["spec"]["runtimeRef"], namespace_of(document), bundled=False)
    except RuntimeNotFound as error:
        return str(error)
    except ApiError as error:
        log.debug("event=runtimes_not_listed name=%s error=%s", name_of(document), error.message)
    return ""


def _check_unknown_fields(cluster: JobsClient, documents: list[Obj], printer: WarningPrinter) -> None:
    """Let the server judge unknown fields in any of several documents before the first one is created. Raises Invalid."""
    for document in documents if len(documents) > 1 else []:
        if has_unknown_fields(document):
            try:
                with with_field_hints(document):
                    create_object(cluster, document, dry_run=True, field_validation="Strict", on_warning=printer.of(document))
            except Undecodable:
                raise
            except ApiError as error:  # it may depend on an earlier document; reported when it is created
                log.debug("event=dry_run_failed name=%s error=%s", name_of(document), error.message)


def _create(
    cluster: JobsClient, document: Obj, earlier: list[Obj], dry_run: DryRun, validate: Validate, printer: WarningPrinter
) -> Obj:
    """Create an object, or let the cluster check it; `earlier` are those before it."""
    validation, on_warning = validate.field_validation, printer.of(document)
    try:
        with with_field_hints(document):
            if dry_run is DryRun.server:
                return dry_run_create(cluster, document, earlier, field_validation=validation, on_warning=on_warning)
            return create_object(cluster, document, field_validation=validation, on_warning=on_warning)
    except LostAnswer:
        raise
    except Forbidden as error:
        if RUNTIME_MISSING in error.message and (known := _known_runtimes(cluster, document)):
            raise Invalid(f"{error.message} ({known})") from None
        raise
    except AlreadyExists:
        raise AlreadyExists(
            f"{document['kind']} {name_of(document)!r} already exists; delete it or choose another name"
        ) from None
    except BadRequest as error:
        if isinstance(error, Invalid):
            raise
        raise Invalid(error.message) from error
