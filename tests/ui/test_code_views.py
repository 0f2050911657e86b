"""Logs and objects in a browser: a log of 200 MB, live lines, search, hostile text, contributors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from factories import cluster_in_memory, jobset, pod, replicated_job, runtime, trainjob
from log_cluster import line
from support.browser import Browser, browser
from support.waiting import eventually

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import POD
from trainwright.api.objects import owner_reference
from trainwright.controlplane.apiserver.http.serve import serve
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.access import LinkLogin
from trainwright.ui.app import LOOPBACK_NAMES, PageApp
from trainwright.ui.call import Page
from trainwright.ui.links import Links, make_code, new_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
LABELS = {"jobset.sigs.k8s.io/jobset-name": "demo", "jobset.sigs.k8s.io/replicatedjob-name": "node"}
INDEX = "batch.kubernetes.io/job-completion-index"
HOSTILE = "<img src=x onerror=alert(1)> \u202e{{7*7}}"
LARGE, LINE_BYTES = 2_000_000, 124


class Cluster(EmbeddedCluster):
    """Rank 0 prints what the test says, rank 1 has a log of 200 MB, that of rank 2 may not be read."""

    live: list[bytes]
    more: threading.Event

    def logs(self, name: str, namespace: str, **options: Any) -> Iterator[bytes]:
        if "node-0-1" in name:
            return large(options.get("tail_lines"), options.get("limit_bytes"))
        if "node-0-2" in name:
            raise Forbidden("pods/log is forbidden")
        return self._follow() if options.get("follow") else iter(self.live)

    def _follow(self) -> Iterator[bytes]:
        told = 0
        while True:
            for chunk in self.live[told:]:
                told += 1
                yield chunk
            time.sleep(0.02)


def large(tail_lines: int | None, limit_bytes: int | None) -> Iterator[bytes]:
    """Yield the last lines, or the first bytes."""
    left = limit_bytes or LARGE * LINE_BYTES
    for first in range(LARGE - min(tail_lines or LARGE, LARGE), LARGE, 10_000):
        chunk = b"".join(map(large_line, range(first, min(first + 10_000, LARGE))))[:left]
        left -= len(chunk)
        yield chunk
        if not left:
            return


def large_line(number: int) -> bytes:
    """A line of LINE_BYTES; ten in a millisecond."""
    minute, rest = divmod(number, 600_000)
    text = f"step {number:07} loss 0.5 ".ljust(LINE_BYTES - 32, "x")
    return f"2026-01-02T03:{minute:02}:{rest // 10_000:02}.{rest % 10_000 * 100_000:09}Z {text}\n".encode()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_in_memory(runtime("rt", policy={"torch": {}})) as made:
        made.__class__ = Cluster
        assert isinstance(made, Cluster)
        made.live = []
        owner = made.create(trainjob(runtime="rt", nodes=3, trainer={"env": [{"name": "HOSTILE", "value": HOSTILE}]}))
        reference = {"ownerReferences": [owner_reference(owner)]}
        made.create(jobset("demo", replicated_job(step="trainer"), metadata=reference))
        for rank, phase in enumerate(("Running", "Succeeded", "Running")):
            created = made.create(pod(f"demo-node-0-{rank}-abc", labels={**LABELS, INDEX: str(rank)}, container={"name": "node"}))
            state: dict[str, Any] = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": 0}}
            entry = {"name": "node", "restartCount": 0, "state": state}
            made.update_status({**created, "status": {"phase": phase, "containerStatuses": [entry]}})
        yield made


@pytest.fixture(scope="module")
def page(cluster: Cluster) -> Iterator[Browser]:
    key = new_key()
    app = PageApp(LinkLogin(Links(key), lambda: JobsClient.of(cluster)), Page(), hosts=LOOPBACK_NAMES)
    with serve(app, port=0) as serving, browser(width=1280, height=900) as window:
        window.open(f"{serving.url}/ui/#code={make_code(key)}")
        window.wait_for("TrainJobs")
        yield window


def show(page: Browser, tab: str, **values: str) -> None:
    query = "&".join(f"{name}={value}" for name, value in values.items())
    page.script("location.hash = arguments[0]", f"#/jobs/default/demo/{tab}?{query}")


def lines_in_view(page: Browser) -> list[int]:
    """Return the numbers that the lines in view have as their second word."""
    found: list[int] = page.script(
        "const box = document.querySelector('.log-box').getBoundingClientRect();"
        "return [...document.querySelectorAll('.log-line')].filter(each => {const r = each.getBoundingClientRect();"
        "return r.top >= box.top - 1 && r.bottom <= box.bottom + 1;})"
        ".map(each => Number(each.querySelector('.log-text').textContent.split(' ')[1]))"
    )
    return found


def show_large(page: Browser) -> None:
    show(page, "objects")
    page.wait_for("As built")
    show(page, "logs", pod="demo-node-0-1-abc")
    page.wait_for("last 5.0 MB", "ended", f"step {LARGE - 1} loss")


def test_a_live_log_is_followed_until_the_reader_scrolls_up(page: Browser, cluster: Cluster) -> None:
    cluster.live[:] = [line(number) for number in range(200)] + [line(200, HOSTILE), b"2026-01-02T03:59:00Z 10%\r 20%"]
    show(page, "logs", pod="demo-node-0-0-abc")
    page.wait_for("line 199", "<img src=x onerror=alert(1)> \\u202e{{7*7}}", "20%", "201 lines", "live")
    cluster.live.append(b"\r100%\n" + line(202))
    page.wait_for("100%", "line 202", "203 lines")
    assert 202 in lines_in_view(page)
    page.script("document.querySelector('.log-box').scrollTop -= 500")
    eventually(lambda: page.element(".log-bar .toggle").get_attribute("aria-pressed") == "false")
    before = eventually(lambda: lines_in_view(page))
    cluster.live.append(b"".join(line(number) for number in range(203, 300)))
    page.wait_for("300 lines")
    assert lines_in_view(page) == before
    page.click("Follow")
    page.wait_for("line 299")
    page.picture("log-live")
    assert page.messages() == []


def test_the_end_of_a_log_of_200_megabytes_is_shown_and_more_on_demand(page: Browser) -> None:
    begun = time.monotonic()
    show(page, "logs", pod="demo-node-0-1-abc")
    page.wait_for("last 5.0 MB", "ended", f"step {LARGE - 1} loss")
    assert time.monotonic() - begun < 5
    assert lines_in_view(page)[-1] == LARGE - 1
    first = scroll_to(page, 0)
    assert LARGE - first == pytest.approx(5_000_000 / LINE_BYTES, rel=0.01)
    assert page.count(".log-line") < 120
    page.script("document.querySelector('.log-box').scrollTop += 180")
    eventually(lambda: lines_in_view(page)[:1] == [first + 10])
    page.click("Load more")
    page.wait_for("last 10.0 MB")
    assert lines_in_view(page)[0] == first + 10  # the reader keeps the place
    assert LARGE - scroll_to(page, 0) == pytest.approx(10_000_000 / LINE_BYTES, rel=0.01)
    page.click("Load more")
    page.wait_for("last 20.0 MB")
    assert "Load more" not in page.text()
    assert LARGE - scroll_to(page, 0) == pytest.approx(20_000_000 / LINE_BYTES, rel=0.01)
    assert page.count(".log-number") == 0  # the number of the first line is unknown
    page.picture("log-large")


def scroll_to(page: Browser, share: float) -> int:
    """Move the scroll bar; returns the first line in view."""
    page.asynchronous(
        "const [share, done] = arguments; const box = document.querySelector('.log-box');"
        "box.scrollTop = share * (box.scrollHeight - box.clientHeight);"
        "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)));",
        share,
    )
    return lines_in_view(page)[0]


def test_the_search_is_in_what_is_loaded_and_moves_between_hits(page: Browser) -> None:
    from selenium.webdriver.common.keys import Keys  # optional

    show_large(page)
    scroll_to(page, 0)
    page.type(".search-field", "STEP 199999")
    page.wait_for("1 of 10 lines in the last 5.0 MB")
    assert 1_999_990 in lines_in_view(page)
    page.press(Keys.ENTER)
    page.wait_for("2 of 10 lines")
    page.press(Keys.SHIFT, Keys.ENTER)
    page.wait_for("1 of 10 lines")
    page.press(Keys.SHIFT, Keys.ENTER)
    page.wait_for("10 of 10 lines")
    assert lines_in_view(page)[-1] == LARGE - 1
    assert page.count("mark") >= 1
    page.click("Regular expression")
    page.type(".search-field", "step 199[13]999 ")
    page.wait_for("of 2 lines")
    page.type(".search-field", "(")
    page.wait_for("Invalid regular expression")
    page.picture("log-search")
    page.click("Regular expression")
    eventually(lambda: page.element(".search-count").text.startswith("0 lines"), 5)
    assert page.messages() == []


def test_wrapped_lines_reach_both_ends(page: Browser) -> None:
    show_large(page)
    page.resize(400, 800)
    page.click("Wrap")
    eventually(lambda: LARGE - 1 in lines_in_view(page))
    first = scroll_to(page, 0)
    assert first < LARGE - 40_000
    assert page.script("const box = document.querySelector('.log-box'); return box.scrollWidth <= box.clientWidth + 1")
    assert page.script("return document.documentElement.scrollWidth <= innerWidth")
    page.picture("log-narrow")
    page.resize(1280, 900)


def test_a_log_that_may_not_be_read_says_so(page: Browser) -> None:
    show(page, "logs", pod="demo-node-0-2-abc")
    page.wait_for("pods/log is forbidden", "Try again", "not connected")
    assert all("403" in message for message in page.messages())


def test_the_log_of_a_deleted_pod_stays_in_view(page: Browser, cluster: Cluster) -> None:
    cluster.live[:] = [line(0, "last words")]
    name = "demo-node-0-0-gone"
    created = cluster.create(pod(name, labels={**LABELS, INDEX: "0"}, container={"name": "node"}))
    entry = {"name": "node", "restartCount": 0, "state": {"running": {}}}
    cluster.update_status({**created, "status": {"phase": "Running", "containerStatuses": [entry]}})
    show(page, "logs", pod=name)
    page.wait_for("last words", name)
    cluster.delete(POD, name, "default", grace_period_seconds=0)
    page.wait_for("deleted", "last words")


def test_objects_are_shown_with_contributors_and_live(page: Browser) -> None:
    show(page, "objects")
    page.wait_for("As built", "In the cluster now", "runtime", "torch", "jobset")
    page.click("torch")
    page.picture("objects-filtered")
    box = "[aria-label='As built'] .yaml-box"
    built = "return document.querySelector(arguments[0]).innerText"
    eventually(lambda: "containerPort: 29500" in page.script(built, box) and "suspend:" not in page.script(built, box))
    assert page.count(".yaml-line.is-context") > 0
    page.click("Show all")
    page.script(
        "const box = document.querySelector('.yaml-box');box.scrollTop = [...box.querySelectorAll('.yaml-line')].length * 20"
    )
    page.picture("objects")
    for scheme in ("dark", "light"):
        page.prefer(scheme)
        page.picture(f"objects-{scheme}")
    page.resize(360, 800)
    assert page.script("return document.documentElement.scrollWidth <= innerWidth")
    page.picture("objects-narrow")
    page.resize(1280, 900)
    assert page.messages() == []
