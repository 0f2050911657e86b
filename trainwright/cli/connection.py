"""Options that select the cluster, the namespace and the submission mode of a command.

TRAINWRIGHT_HOME is the default of `--home` in every command: the home that `up` and `down` use is the cluster that the others use.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from trainwright.api.errors import ApiError
from trainwright.cli.errors import BAD_INPUT, fail
from trainwright.cluster import NoCluster, connect
from trainwright.cluster.answers import NoConnection
from trainwright.cluster.discovery import server_version
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.embedded.home import VARIABLE, Home
from trainwright.submission.connect import connect_for_jobs, for_jobs
from trainwright.submission.jobs_client import JobsClient, Mode, requested_mode
from trainwright.text.foreign_texts import one_line


def home_folder(value: Path | None) -> Path | None:
    """Callback of `--home`: rejects what can be no folder, such as a name that is too long."""
    if value is not None:
        try:
            os.stat(Home.chosen(value).path)
        except FileNotFoundError:  # it will be created
            pass
        except OSError as error:
            raise typer.BadParameter(f"{one_line(error.strerror)}: {one_line(value)[:_MOST_SHOWN]}") from None
        except (RuntimeError, ValueError):
            raise typer.BadParameter(f"not a folder: {one_line(value)[:_MOST_SHOWN]}") from None
    return value


_MOST_SHOWN = 80
Namespace = Annotated[str, typer.Option("-n", "--namespace", help="Default: the kubeconfig's.")]
Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help="Default: TRAINWRIGHT_HOME's, KUBECONFIG, the pod's service account, ~/.kube/config."),
]
HomeChoice = Annotated[
    Path | None,
    typer.Option(
        "--home",
        help="Use the embedded cluster in this folder. Default: TRAINWRIGHT_HOME, unless --kubeconfig is given.",
        callback=home_folder,
    ),
]
SubmissionMode = Annotated[
    Mode | None,
    typer.Option("--submission-mode", help="Default: TRAINWRIGHT_SUBMISSION_MODE, else auto, which depends on the cluster."),
]


def cluster_for(kubeconfig: Path | None, home: Path | None) -> KubernetesCluster:
    """Connect to the cluster that the options select, and make sure that it can be reached. Raises NoCluster, NoConnection."""
    cluster = selected_cluster(kubeconfig, home)
    require_connection(cluster, kubeconfig, home)
    return cluster


def jobs_cluster_for(kubeconfig: Path | None, home: Path | None, mode: Mode | None) -> JobsClient:
    """Connect for a command on TrainJobs. Raises NoCluster, and ApiError if the API server is unreachable."""
    if requested_mode(mode or "") is Mode.embedded:
        return connect_for_jobs(kubeconfig, embedded=None if kubeconfig else Home.chosen(home).path, mode=mode or "")
    return for_jobs(cluster_for(kubeconfig, home), mode or "")


def selected_cluster(kubeconfig: Path | None, home: Path | None) -> KubernetesCluster:
    """Return the cluster that the options select, without a request to it. Raises NoCluster."""
    embedded = selected_home(kubeconfig, home)
    if embedded is None:
        return connect(kubeconfig)
    if not embedded.kubeconfig.is_file():
        raise NoCluster(f"no embedded cluster was ever started in {embedded.path}: start it with `{_start_command(embedded)}`")
    return connect(embedded.kubeconfig)


def require_connection(cluster: KubernetesCluster, kubeconfig: Path | None, home: Path | None) -> None:
    """Send one request. If there is no connection, raises NoConnection at once with what to do: a cluster that has been stopped does
    not come back by waiting. Other errors are left to the command.
    """
    try:
        server_version(cluster)
    except NoConnection as error:
        raise NoConnection(f"{error.message}: {_advice(kubeconfig, home)}") from error
    except ApiError:  # it answers: what it refuses, the command reports
        return


def selected_home(kubeconfig: Path | None, home: Path | None) -> Home | None:
    """Return the embedded cluster that the options or TRAINWRIGHT_HOME select; None if another cluster is selected."""
    if home is not None and kubeconfig is not None:
        fail("--home and --kubeconfig exclude each other", BAD_INPUT)
    return Home.chosen(home) if home is not None or (kubeconfig is None and os.environ.get(VARIABLE)) else None


def _advice(kubeconfig: Path | None, home: Path | None) -> str:
    embedded = selected_home(kubeconfig, home)
    if embedded is None:
        embedded = Home(Path(kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config").expanduser().absolute().parent)
    if embedded.database.exists():
        return f"the embedded cluster in {embedded.path} is stopped; start it with `{_start_command(embedded)}`"
    return "check that the cluster is running and that the kubeconfig is correct"


def _start_command(embedded: Home) -> str:
    is_default = embedded.path == Home.chosen().path
    return "trainwright up" if is_default else f"trainwright up --home {shlex.quote(str(embedded.path))}"
