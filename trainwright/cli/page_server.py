"""Serves the page from the command line, or opens the one of an embedded cluster. Imported by `trainwright ui` alone."""

from __future__ import annotations

import hashlib
import signal
import tempfile
import threading
import webbrowser
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from trainwright.api.errors import BadRequest
from trainwright.cli.connection import cluster_for, jobs_cluster_for
from trainwright.cli.errors import fail
from trainwright.cli.output import is_terminal, print_lines
from trainwright.cli.page_link import announced, home_of, link_to, write_redirect
from trainwright.controlplane.apiserver.http.serve import serve
from trainwright.embedded.home import Home
from trainwright.steps.data.places import place_uri
from trainwright.submission.connect import for_jobs
from trainwright.submission.jobs_client import JobsClient, Mode
from trainwright.text.foreign_texts import one_line
from trainwright.ui.access import LinkLogin, Login, TokenLogin
from trainwright.ui.app import LOOPBACK_NAMES, PREFIX, PageApp
from trainwright.ui.call import Page
from trainwright.ui.launches.launches import Launches
from trainwright.ui.links import Links, make_code, new_key


def open_embedded(embedded: Home | None, kubeconfig: Path | None, *, wants_browser: bool) -> bool:
    """Open the page of an embedded cluster, if that is the selected one. Returns whether it is. Fails if it does not run."""
    home = embedded or home_of(kubeconfig)
    if home is None or (embedded is None and home.running() is None):
        return False
    link = link_to(home)
    if not link:
        fail(f"the embedded cluster in {home.path} does not run; start it with `trainwright up`")
    _show(link, home.path / "page" / "open.html", wants_browser=wants_browser)
    return True


def serve_page(
    *,
    kubeconfig: Path | None,
    home: Path | None,
    submission_mode: Mode | None,
    host: str,
    port: int,
    exports: tuple[str, ...],
    workspaces: tuple[Path, ...],
    orchestrators: Mapping[str, str],
    token_login: bool,
    wants_browser: bool,
) -> None:
    """Serve until interrupted.

    Args:
        kubeconfig, home, submission_mode: The cluster, as other commands select it.
        host, port: Where to listen.
        exports: URIs or paths of folders of exports.
        workspaces: Folders of this machine.
        orchestrators: Addresses of Airflow and KFP, as `airflow` and `kfp`.
        token_login: Whether users log in with tokens of the cluster; they then have their own rights, and this server reads no files.
        wants_browser: Whether to start a browser.

    Raises NoCluster, NoConnection, ApiError, BadRequest.
    """
    for workspace in workspaces:
        if not _is_folder(workspace):
            raise BadRequest(f"--workspace: {one_line(workspace)[:200]} is not a folder")
    for name, address in orchestrators.items():
        if not address.startswith(("https://", "http://")):
            raise BadRequest(f"--{name}-url: {one_line(address)[:200]}: expected https://...")
    key = new_key()
    login: Login
    if token_login:
        base = cluster_for(kubeconfig, home)
        login = TokenLogin(lambda token: for_jobs(base.with_token(token), submission_mode or ""))
        page, api_server = Page(exports=exports, orchestrators=orchestrators), base.host
    else:
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
        api_server = cluster.host or ""
        login = LinkLogin(Links(key), lambda: cluster)
        page = Page(
            exports=tuple(map(place_uri, exports)),
            workspaces=tuple(folder.absolute() for folder in workspaces),
            file_roots=(Path("/"),),
            may_read_files=True,
            orchestrators=orchestrators,
            launches=Launches(
                runs_on(cluster),
                host=api_server,
                kubeconfig=str(kubeconfig.absolute() if kubeconfig else ""),
                mode=submission_mode or "",
            ),
        )
    app = PageApp(login, page, hosts=None if token_login else LOOPBACK_NAMES)
    try:
        serving = serve(app, host, port, beyond_loopback=token_login)
    except OSError as error:
        fail(f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another --port")
    url = f"{serving.url}{PREFIX}/"
    with (
        serving,
        announced(api_server, url) if host == "127.0.0.1" else nullcontext(),
        tempfile.TemporaryDirectory(prefix="trainwright-ui-") as folder,
    ):
        if token_login:
            print_lines(f"page: {url} (Ctrl-C ends it)", error=True)
        else:
            _show(f"{url}#code={make_code(key)}", Path(folder) / "open.html", wants_browser=wants_browser)
        _until_stopped()


def runs_on(cluster: JobsClient) -> Path:
    """Return the folder of the fine-tunings that were started on pages of this cluster."""
    return Home.chosen().path / "page" / f"runs-{hashlib.sha256((cluster.host or '').encode()).hexdigest()[:16]}"


def _until_stopped() -> None:
    """Wait for SIGINT or SIGTERM."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    stopped.wait()


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long
        return False


def _show(link: str, redirect: Path, *, wants_browser: bool) -> None:
    """Print the link, without its code where the output is not a terminal, and start a browser with a file that leads to it."""
    print_lines(link if is_terminal() else link.partition("#")[0])
    if not wants_browser:
        if not is_terminal():
            print_lines("the link has no code: `trainwright ui` prints a whole link on a terminal", error=True)
        return
    try:
        write_redirect(redirect, link)
        opened = webbrowser.open(redirect.as_uri())
    except (OSError, webbrowser.Error) as error:
        opened = False
        print_lines(f"no browser was started: {one_line(error)}", error=True)
    if not opened:
        where = "open the link" if is_terminal() else "run `trainwright ui` on a terminal, and open its link"
        print_lines(f"{where} in a browser of this machine", error=True)
