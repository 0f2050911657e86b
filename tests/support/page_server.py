"""Serves the page for tests with a browser, on a free port of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from support.browser import Browser
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.apiserver.http.serve import serve
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.access import LinkLogin, Login
from trainwright.ui.app import LOOPBACK_NAMES, PageApp
from trainwright.ui.call import Page
from trainwright.ui.links import Links, make_code, new_key


@dataclass(frozen=True)
class PageServer:
    """A server of the page; `url` ends with a slash."""

    app: PageApp
    url: str
    key: bytes

    def link(self) -> str:
        """Return a new link that works once."""
        return f"{self.url}#code={make_code(self.key)}"

    def enter(self, window: Browser) -> None:
        """Begin a session in a browser."""
        window.open(self.link())
        window.wait_for("TrainJobs", "live")


@contextmanager
def serving(cluster: Cluster, page: Page | None = None, *, login: Login | None = None, port: int = 0) -> Iterator[PageServer]:
    """Serve the page of a cluster: for its owner, or for users with another `login`."""
    key = new_key()
    app = PageApp(login or LinkLogin(Links(key), lambda: JobsClient.of(cluster)), page or Page(), hosts=LOOPBACK_NAMES)
    with serve(app, port=port) as server:
        yield PageServer(app, f"{server.url}/ui/", key)
