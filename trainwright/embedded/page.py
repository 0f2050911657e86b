"""The page of an embedded cluster, on a port of its own: browsers do not know the authority of the API server's certificate.

The listener costs next to nothing until a browser connects: the application is imported and made by the first request.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from trainwright.api import names
from trainwright.api.kinds import CLAIM
from trainwright.api.objects import annotations_of, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.apiserver.http.serve import PortInUse, Serving, serve
from trainwright.embedded.home import Home

if TYPE_CHECKING:
    from trainwright.ui.app import PageApp

log = logging.getLogger(__name__)

PATH = "/ui/"
_STOP_SECONDS, _POLL_SECONDS = 2.0, 0.05


class EmbeddedPage:
    """Serves the page of the cluster in `home` from `start` to `stop`."""

    def __init__(self, home: Home, cluster: Cluster):
        self._home, self._cluster = home, cluster
        self._serving: Serving | None = None

    @property
    def url(self) -> str:
        """The address of the page; empty before it is served."""
        return f"{self._serving.url}{PATH}" if self._serving is not None else ""

    def start(self) -> None:
        """Make a new key for links, and listen: on the last port if it is free, since pages may be open. Raises OSError.

        If another program has that port, it may have got the session of an open page, and all sessions end.
        """
        key = self._write_key()
        app = _OnDemand(lambda: _create(self._home, key, self._claims))
        try:
            self._serving = serve(app, port=self._home.last_page_port())
        except PortInUse as error:
            _sessions(self._home).unlink(missing_ok=True)
            log.warning("event=page_port_taken port=%d sessions=ended", error.port)
            self._serving = serve(app, port=0)

    def stop(self) -> None:
        """Suspend the trainings that were started on the page, and end it."""
        if _runs(self._home).is_dir():
            _stop_runs(self._home)
        if self._serving is not None:
            self._serving.stop()

    def _claims(self) -> dict[str, Path]:
        """Return the folders of claims that are not in the home: those of `make finetune`, and others that were chosen."""
        chosen = {}
        for claim in self._cluster.list(CLAIM).items:
            folder = annotations_of(claim).get(names.HOST_PATH_ANNOTATION, "")
            if folder and not Path(folder).is_relative_to(self._home.claims):
                chosen[f"{namespace_of(claim)}/{name_of(claim)}"] = Path(folder)
        return chosen

    def _write_key(self) -> bytes:
        from trainwright.ui.links import new_key
        from trainwright.ui.private_file import write_private

        key = new_key()
        write_private(self._home.page_key, key)
        return key


def _sessions(home: Home) -> Path:
    """The file of the sessions that go on after a restart."""
    return home.path / "page" / "sessions.json"


def _runs(home: Home) -> Path:
    """The folder of the fine-tunings that were started on the page."""
    return home.path / "page" / "runs"


def _stop_runs(home: Home) -> None:
    """Interrupt them while the API server still answers, and give them a moment to suspend their trainings."""
    from trainwright.ui.launches.launches import Launches

    launches = Launches(_runs(home), kubeconfig=str(home.kubeconfig))
    launches.stop_all()
    deadline = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < deadline and any(each.state == "running" for each in launches.list()):
        time.sleep(_POLL_SECONDS)


def _create(home: Home, key: bytes, claims: Callable[[], dict[str, Path]]) -> PageApp:
    from trainwright.cluster import connect
    from trainwright.storage.uri import StorageUri
    from trainwright.submission import connect_for_jobs
    from trainwright.ui.access import LinkLogin
    from trainwright.ui.app import LOOPBACK_NAMES, PageApp
    from trainwright.ui.call import Page
    from trainwright.ui.launches.launches import Launches
    from trainwright.ui.links import Links

    page = Page(
        workspaces=(home.claims,),
        claims=claims,
        file_roots=(Path("/"),),  # this process is the owner's, and so are all sessions
        may_read_files=True,
        sessions=_sessions(home),
        orchestrators={
            name: address
            for name, variable in (("airflow", "TRAINWRIGHT_AIRFLOW_URL"), ("kfp", "TRAINWRIGHT_KFP_URL"))
            if (address := os.environ.get(variable, ""))
        },
        new_exports=str(StorageUri.from_path(home.path / "exports")),
        launches=Launches(_runs(home), host=connect(home.kubeconfig).host, kubeconfig=str(home.kubeconfig)),
    )
    login = LinkLogin(Links(key), lambda: connect_for_jobs(home.kubeconfig))
    return PageApp(login, page, hosts=LOOPBACK_NAMES)


class _Streams:
    """Ends the streams of an application, if it was ever made."""

    def __init__(self) -> None:
        self.app: PageApp | None = None
        self.closed = False

    def close(self) -> None:
        self.closed = True
        if self.app is not None:
            self.app.close()


class _OnDemand:
    """An ASGI application that another one is made for by its first request."""

    def __init__(self, create: Callable[[], PageApp]):
        self._create = create
        self._lock = asyncio.Lock()
        self.streams = _Streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._lock:
            if self.streams.app is None:
                self.streams.app = await run_in_threadpool(self._create)
                if self.streams.closed:
                    self.streams.app.close()
        await self.streams.app(scope, receive, send)
