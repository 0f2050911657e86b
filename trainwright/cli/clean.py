"""`trainwright clean`: stops what runs of pipelines have left running."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from trainwright.api.errors import Forbidden
from trainwright.cli.connection import HomeChoice, Kubeconfig, Namespace, SubmissionMode, jobs_cluster_for
from trainwright.cli.errors import BAD_INPUT, FAILURE, cluster_errors_exit, fail
from trainwright.cli.jobs import CancelMode
from trainwright.cli.output import ViewFormat, print_lines, print_object, print_table
from trainwright.cli.waiting import finite_seconds
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.cancel import CancelPolicy
from trainwright.steps.ends.clean import (
    CleanedJob,
    LeftCredentials,
    LeftJobs,
    clean,
    delete_left,
    described,
    left_credentials,
    left_jobs,
)

_SUBMITTER_WIDTH = 50
"""Characters of a submitter in the table; JSON has all of it."""


def register(app: typer.Typer) -> None:
    app.command("clean")(clean_command)


def clean_command(
    run: Annotated[str, typer.Option("--run", help="Jobs of the run with this id.")] = "",
    older_than: Annotated[
        float, typer.Option(min=0, max=36_500, help="Jobs created more than so many days ago.", callback=finite_seconds)
    ] = 0,
    abandoned: Annotated[
        bool, typer.Option("--abandoned", help="Jobs that nobody waits for: their run has ended, or their lease has expired.")
    ] = False,
    how: Annotated[
        CancelMode,
        typer.Option("--mode", help="suspend: running the step again resumes the job. delete: its pods and logs go too."),
    ] = CancelMode.suspend,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, only show what would be done.")] = False,
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="In all namespaces.")] = False,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
    output: Annotated[ViewFormat, typer.Option("-o", "--output", help="Form of the output.")] = ViewFormat.table,
) -> None:
    """Suspend or delete unfinished TrainJobs that runs have left. Options select jobs; with several, a job must match all.

    Only jobs that Trainwright has created are changed, and none that has ended. Secrets with a step's credentials that no job owns,
    since their submitter was killed, are deleted, if you may list Secrets.
    """
    if not (run or older_than or abandoned):
        fail("nothing is selected: set --run, --older-than or --abandoned", BAD_INPUT)
    left = LeftJobs(run=run, older_than=timedelta(days=older_than) if older_than else None, abandoned=abandoned)
    with cluster_errors_exit():
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
        where = None if all_namespaces else namespace or cluster.default_namespace
        found = left_jobs(cluster, where, left)
        done = list(clean(cluster, found, CancelPolicy(how.value))) if yes else [described(job, f"would {how}") for job in found]
        secrets = _secrets(cluster, where, left)
        if secrets and yes:
            secrets = list(delete_left(cluster, secrets))
    _show(done, secrets, yes, output)
    if any(each.failed for each in (*done, *(secrets or ()))):
        raise typer.Exit(FAILURE)


def _secrets(cluster: Cluster, namespace: str | None, left: LeftJobs) -> list[LeftCredentials] | None:
    """Return the Secrets that are left over; None without the right to list Secrets, which few have."""
    try:
        return left_credentials(cluster, namespace, run=left.run, older_than=left.older_than)
    except Forbidden:  # Secrets are cleaned by those who may list them
        return None


def _show(jobs: list[CleanedJob], secrets: list[LeftCredentials] | None, was_done: bool, output: ViewFormat) -> None:
    if output is not ViewFormat.table:
        shown = [{**asdict(job), "phase": job.phase.value} for job in jobs]
        left = None if secrets is None else [asdict(secret) for secret in secrets]
        print_object({"dry_run": not was_done, "jobs": shown, "secrets": left}, output)
        return
    rows = ((job.namespace, job.name, _cut(job.submitter), job.phase.value, job.created, job.outcome) for job in jobs)
    if jobs:
        print_table(("NAMESPACE", "NAME", "SUBMITTER", "PHASE", "CREATED", "OUTCOME"), rows)
    if secrets:
        print_table(
            ("NAMESPACE", "SECRET", "CREATED", "OUTCOME"),
            ((each.namespace, each.name, each.created, each.outcome or "would delete") for each in secrets),
        )
    counts = f"{len(jobs)} jobs, {'Secrets were not looked at' if secrets is None else f'{len(secrets)} Secrets'}"
    print_lines(f"{counts}{'' if was_done or not (jobs or secrets) else '; add --yes'}")


def _cut(submitter: str) -> str:
    return submitter if len(submitter) <= _SUBMITTER_WIDTH else f"{submitter[: _SUBMITTER_WIDTH - 1]}…"
