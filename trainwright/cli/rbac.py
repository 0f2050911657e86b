"""`trainwright rbac`: prints the roles and bindings with which service accounts can run jobs."""

from __future__ import annotations

import enum
import re
import sys
from typing import Annotated

import typer

from trainwright.cli.errors import BAD_INPUT, fail
from trainwright.cli.output import Format, print_objects
from trainwright.jobs.submit.rbac_manifests import Extras, ServiceAccount, rbac_manifests, rbac_yaml
from trainwright.runtimes.image import image
from trainwright.submission.jobs_client import Mode


class Orchestrator(enum.StrEnum):
    kfp = "kfp"
    airflow = "airflow"


class RoleMode(enum.StrEnum):
    trainjob = "trainjob"
    jobset = "jobset"
    auto = "auto"


_ACCOUNTS = {
    Orchestrator.kfp: ("pipeline-runner",),
    Orchestrator.airflow: ("airflow:airflow-worker", "airflow:airflow-triggerer"),
}
"""Accounts of standalone Kubeflow Pipelines, and of Airflow's Helm chart installed as `airflow` in the namespace `airflow`."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def register(app: typer.Typer) -> None:
    app.command("rbac")(rbac)


def rbac(
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Namespace of the jobs.")],
    service_account: Annotated[
        list[str] | None,
        typer.Option(
            "--service-account", metavar="NAME", help="NAME in that namespace, or NAMESPACE:NAME; repeat it for several."
        ),
    ] = None,
    orchestrator: Annotated[
        Orchestrator | None, typer.Option("--for", help="Default of --service-account: the accounts of this orchestrator.")
    ] = None,
    mode: Annotated[RoleMode, typer.Option(help="Submission mode; auto grants both.")] = RoleMode.trainjob,
    mpi_flux: Annotated[
        bool,
        typer.Option("--mpi-flux", help="For MPI and Flux runtimes in jobset mode: also allow creating Secrets for their keys."),
    ] = False,
    credentials: Annotated[
        bool,
        typer.Option(
            "--credentials", help="For connections of Airflow on the cluster: also allow writing, not reading, Secrets."
        ),
    ] = False,
    guard: Annotated[
        bool,
        typer.Option(
            "--guard",
            help="Also a guard, which ends jobs that nobody waits for any more: an account, its role and a Deployment. "
            "TRAINWRIGHT_IMAGE is its image.",
        ),
    ] = False,
    all_namespaces: Annotated[
        bool, typer.Option("-A", "--all-namespaces", help="With --guard: for all namespaces, in trainwright-system.")
    ] = False,
    data_cache: Annotated[
        bool,
        typer.Option("--data-cache", help="Also the service account with which initializers start data caches, and its rights."),
    ] = False,
    output: Annotated[Format, typer.Option("-o", "--output", help="Documents in YAML, or one List in JSON.")] = Format.yaml,
) -> None:
    """Print the permissions that clients need to run jobs in a namespace, for `kubectl apply -f -`.

    Manifests for several namespaces and accounts do not replace each other.
    """
    if not _NAME.fullmatch(namespace):
        fail(f"--namespace: {namespace!r} is not the name of a namespace", BAD_INPUT)
    names = service_account or (_ACCOUNTS[orchestrator] if orchestrator else ())
    if not names:
        fail("--service-account NAME is required, or --for kfp or --for airflow", BAD_INPUT)
    accounts = [_account(name, namespace) for name in names]
    if all_namespaces and not guard:
        fail("--all-namespaces is for --guard; the permissions of clients are those of one namespace", BAD_INPUT)
    guard_image = image("controller") if guard else ""
    extras = Extras(mpi_flux, credentials, orchestrator is Orchestrator.kfp, guard_image, all_namespaces, data_cache)
    if output is Format.json:
        print_objects(rbac_manifests(namespace, accounts, Mode(mode.value), extras), output)
    else:
        sys.stdout.write(rbac_yaml(namespace, accounts, Mode(mode.value), extras))


def _account(text: str, namespace: str) -> ServiceAccount:
    where, separator, name = text.rpartition(":")
    account = ServiceAccount(where if separator else namespace, name)
    if not _NAME.fullmatch(account.name) or not _NAME.fullmatch(account.namespace):
        fail(f"--service-account: {text!r} is not of the form NAME or NAMESPACE:NAME", BAD_INPUT)
    return account
