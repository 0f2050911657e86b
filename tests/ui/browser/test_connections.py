"""Streams end when nobody sees their page: browsers open six connections to a server, so a seventh page would not load."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.browser import Browser, browser
from support.page_cluster import PageCluster
from support.page_server import PageServer, serving
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
MOST_PAGES = 7


@pytest.fixture
def server(cluster: PageCluster) -> Iterator[PageServer]:
    with serving(cluster) as running:
        yield running


@pytest.fixture
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def test_pages_that_were_left_hold_no_streams(window: Browser, server: PageServer) -> None:
    for _ in range(MOST_PAGES):
        server.enter(window)
        window.open("about:blank")
    eventually(lambda: len(server.app.streams) == 0, 20, "the end of all streams")
    window.driver.back()
    window.wait_for("TrainJobs", "live", "demo")


def test_a_page_in_the_background_pauses_and_goes_on_where_it_is_seen(
    window: Browser, server: PageServer, cluster: PageCluster
) -> None:
    """After a while; Chromium without a screen never hides a page, so the test says that it is hidden, and lets the time pass."""
    see = (
        "Object.defineProperty(document, 'hidden', {value: arguments[0], configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    server.enter(window)
    window.open(f"{server.url}#/jobs/default/demo")
    window.wait_for("Conditions", "live")
    window.script("window.later = setTimeout; window.setTimeout = (act, milliseconds) => later(act, milliseconds / 20)")
    window.script(see, True)
    eventually(lambda: len(server.app.streams) == 0, 20, "the end of the stream")
    cluster.report("demo", 41, loss="1.0")
    window.script(see, False)
    window.wait_for("live", "41 %")
    assert window.messages() == []
