"""`trainwright ui`: opens the page of an embedded cluster, or serves one for any other cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainwright.cli.connection import HomeChoice, Kubeconfig, SubmissionMode, selected_home
from trainwright.cli.errors import BAD_INPUT, bad_input_exits, cluster_errors_exit, fail
from trainwright.cli.output import print_lines


def register(app: typer.Typer) -> None:
    app.command("ui")(ui)


def ui(
    port: Annotated[int, typer.Option(help="Port to serve the page on; 0 uses any free port.", min=0, max=65535)] = 0,
    exports: Annotated[
        list[str] | None, typer.Option(help="Folder of exported checkpoints to show; repeatable.", metavar="URI")
    ] = None,
    workspace: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of this machine with a workspace whose runs to show; repeatable.", metavar="FOLDER"),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the link, without starting a browser.")] = False,
    airflow: Annotated[
        str, typer.Option("--airflow-url", envvar="TRAINWRIGHT_AIRFLOW_URL", help="Address of Airflow, for links to DAG runs.")
    ] = "",
    kfp: Annotated[
        str, typer.Option("--kfp-url", envvar="TRAINWRIGHT_KFP_URL", help="Address of Kubeflow Pipelines, for links to runs.")
    ] = "",
    token_login: Annotated[
        bool, typer.Option("--token-login", help="Users log in with tokens of the cluster: for a server in a cluster.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on; other than 127.0.0.1 only with --token-login.")] = "127.0.0.1",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
) -> None:
    """Show TrainJobs, runs and models in a browser.

    An embedded cluster serves the page itself: this opens it. For any other cluster it is served here until Ctrl-C, with the
    rights of the kubeconfig, on this machine only.
    """
    from trainwright.cli.page_server import open_embedded, serve_page
    from trainwright.ui.static_files import MISSING, has_vendored_files

    if not has_vendored_files():
        fail(MISSING)
    if host != "127.0.0.1" and not token_login:
        fail("--host: only with --token-login: whoever reaches the page has the rights of the kubeconfig", BAD_INPUT)
    with cluster_errors_exit(), bad_input_exits():
        embedded = selected_home(kubeconfig, home)
        if not token_login and open_embedded(embedded, kubeconfig, wants_browser=not no_open):
            if port or exports or workspace:
                print_lines(
                    "note: --port, --exports and --workspace do not apply: the embedded cluster serves its page", error=True
                )
            return
        serve_page(
            kubeconfig=kubeconfig,
            home=home,
            submission_mode=submission_mode,
            host=host,
            port=port,
            exports=tuple(exports or ()),
            workspaces=tuple(workspace or ()),
            orchestrators={name: address for name, address in (("airflow", airflow), ("kfp", kfp)) if address},
            token_login=token_login,
            wants_browser=not no_open,
        )
