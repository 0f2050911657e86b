"""Texts of others stay texts: in names, annotations, statuses, events, logs, metrics, manifests, reports and records.

Nothing of them runs, is loaded or is linked to; nothing makes a view wider than the window; nothing keeps the rest from being used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from factories import trainjob
from support.browser import Browser, browser
from support.page_cluster import PageCluster, ago, condition, page_cluster
from support.page_server import serving
from support.written_exports import write_export

from trainwright.api import names
from trainwright.api.objects import Obj, name_of
from trainwright.checkpoints.promotion import Alias
from trainwright.ui.call import Page
from trainwright.ui.launches.launches import Launches, LaunchFolder
from trainwright.workspace import begin_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
MARKUP = '<script>window.owned=1</script><img src=x onerror="window.owned=1"><svg/onload=window.owned=1>"\'>'
TEMPLATE = '{{constructor.constructor("window.owned=1")()}}${window.owned=1}'
ADDRESS = "javascript:window.owned=1"
DIRECTION = "\u202egnp\u200b\u200d\ufeff.exe\u2067\u2028end"
ANSI = "\x1b[31mred\x1b[0m\x1b]8;;javascript:window.owned=1\x07link\x1b]8;;\x07\x1b[2J"
ALL = f"{MARKUP} {TEMPLATE} {ADDRESS} {DIRECTION}"
LONG = "w" * 100_000
BYTES = b"\xff\xfe\xc3(\xed\xa0\x80 \xf0\x9f\x92\xa9" + ANSI.encode()
NAMES = ["__proto__", "constructor", "toString", "hasOwnProperty", "loss", MARKUP[:60], DIRECTION, "n" * 300]
"""Of metrics and settings: those of JavaScript's objects among them."""
REPORT = f"""---
title: {MARKUP}
---
# Report {ALL}

| {MARKUP} | b |
|---|---|
| [a]({ADDRESS}) | ![i](http://tracker.example/x.png) |

- [a](data:text/html,{quote(MARKUP)}) [b](//evil.example) [good](https://example.com/x) <a href="{ADDRESS}">c</a>

```html
{MARKUP}
```

{LONG}

{"`" * 5000} {"[" * 5000} {"*" * 5000}
"""
VIEWS: list[tuple[str, dict[str, str], tuple[str, ...]]] = [
    ("/jobs", {}, ("hostile", "<script>")),
    ("/jobs", {"q": MARKUP, "ns": MARKUP, "phase": "__proto__", "sort": "__proto__"}, ("TrainJobs",)),
    (f"/jobs/{quote(MARKUP, safe='')}/{quote(DIRECTION, safe='')}", {}, ("TrainJobs",)),
    ("/jobs/default/hostile", {}, ("Conditions", "window.owned=1", "BackOff")),
    ("/jobs/default/hostile/curves", {}, ("loss as a table", "3 other metrics")),
    ("/jobs/default/hostile/logs", {}, ("red", "window.owned=1")),
    ("/jobs/default/hostile/objects", {}, ("As built", "window.owned=1")),
    ("/jobs/default/hostile/__proto__", {}, ("There is no such part",)),
    ("/jobs/default/failed", {}, ("Why it failed", "window.owned=1", "failed:")),
    ("/jobs/default/garbled", {}, ("Conditions", "Events")),
    ("/jobs/default/garbled/curves", {}, ("garbled",)),
    ("/runs", {}, ("<script>", "run-1")),
    ("/runs/0%3Adefault%2Fdata/run-1", {"tab": "overview"}, ("Base model", "window.owned=1", "constructor", "Sample: prompt")),
    ("/runs/compare", {"run": "0:default/data/run-1"}, ("constructor", "training: constructor, last value")),
    ("/runs/compare", {"run": f"{MARKUP}/{MARKUP}"}, ("has no workspace",)),
    ("/runs/0%3Adefault%2Fdata/run-1", {"tab": "trainings"}, ("constructor", "not finite")),
    ("/runs/0%3Adefault%2Fdata/run-1", {"tab": "files"}, ("Report <script>", "good")),
    ("/runs/0%3Adefault%2Fdata/run-1", {"tab": "files", "file": "notes.txt"}, ("window.owned=1",)),
    ("/runs/__proto__/constructor", {}, ("has no workspace",)),
    ("/models", {}, ("champion", "<script>")),
    ("/models", {"uri": "EXPORTS/one"}, ("2 exports", "checkpoint-10")),
    ("/models/export", {"uri": "EXPORTS/one/checkpoint-5"}, ("Provenance", "constructor")),
    (
        "/models/diff",
        {"one": "EXPORTS/one/checkpoint-5", "other": "EXPORTS/one/checkpoint-10"},
        ("Settings", "constructor"),
    ),
    ("/models", {"uri": f"file:///{MARKUP}"}, ("is not below a folder",)),
    ("/models/export", {"uri": ADDRESS}, ("Try again",)),
    ("/new", {}, ("Started on this page", "window.owned=1")),
    ("/new/failed", {}, ("window.owned=1", "Resume")),
    ("/new/started", {}, ("window.owned=1", "Promotion")),
    (f"/{quote(MARKUP, safe='')}", {}, ("There is no such view",)),
]
"""Route, values of the address and words of each view; the address says EXPORTS for the folder of exports."""


@dataclass(frozen=True)
class Shown:
    window: Browser
    cluster: PageCluster
    exports: str


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("hostile")
    exports = f"file://{folder / 'exports'}"
    write_run(folder / "claims" / "default" / "data")
    write_exports(folder / "exports")
    launches = Launches(folder / "launches", start=record_launch)
    launches.launch("failed", "default", {})
    launches.launch("started", "default", {"promote": "better", "registry": "r"})
    page = Page(exports=(exports,), workspaces=(folder / "claims",), file_roots=(folder,), may_read_files=True, launches=launches)
    with hostile_cluster() as cluster, serving(cluster, page) as server, browser() as window:
        server.enter(window)
        yield Shown(window, cluster, exports)


@contextmanager
def hostile_cluster() -> Iterator[PageCluster]:
    with page_cluster() as cluster:
        hostile_job(cluster)
        failed_job(cluster)
        garbled_job(cluster)
        yield cluster


def hostile_job(cluster: PageCluster) -> None:
    """A running job: all that a user can write into it, its pods and its log."""
    annotations = {
        names.OWNER_ANNOTATION: f"airflow/{MARKUP}/{ADDRESS}?{DIRECTION}/{TEMPLATE}",
        names.RUN_FOLDER_ANNOTATION: f"pvc://data/runs/run-1?{ADDRESS}",
        names.RESUMES_FROM_ANNOTATION: f"{ADDRESS} {MARKUP}",
        names.DATASET_DIGEST_ANNOTATION: LONG,
        names.MODEL_DIGEST_ANNOTATION: DIRECTION,
    }
    values = ["0.75", "0.25", "nan", "-1e400", "1e308", MARKUP[:60], " ", "-0"]
    metrics = [{"name": name[:60], "value": value} for name, value in zip(NAMES, values, strict=True)]
    named = [{"name": "step", "value": "7"}, *metrics]
    status = {"progressPercentage": 50, "estimatedRemainingSeconds": 2**31 - 1, "metrics": named, "lastUpdatedTime": ago(0)}
    waits = condition(names.QUOTA_RESERVED, 1, "Waits", f"{ALL} {LONG[:20000]}", "False")
    job = trainjob("hostile", metadata={"annotations": annotations}, nodes=2)
    job["spec"]["trainer"].update(env=[{"name": "A", "value": ALL}, {"name": "B", "value": LONG}], args=[MARKUP, ANSI])
    jobs = [{"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}]
    made = cluster.add_job(job, conditions=[waits], trainerStatus=status, jobsStatus=jobs)
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": ALL + ANSI, "startedAt": ago(3), "finishedAt": ago(2)}}
    first = cluster.add_pod(made, 0, running={"startedAt": ago(1)})
    cluster.changes["Pod", name_of(first)] = {
        "spec": {"nodeName": MARKUP},
        "status": {
            "reason": MARKUP,
            "message": ALL + LONG,
            "containerStatuses": [
                {"name": "node", "restartCount": 2**31 - 1, "state": {"running": {"startedAt": ago(1)}}, "lastState": ended}
            ],
        },
    }
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": ALL + LONG}}
    cluster.add_pod(made, 1, phase="Pending", **waiting)
    cluster.add_event(first, "BackOff", ALL + ANSI + LONG[:900], kind="Warning")
    cluster.write(name_of(first), *(f"{text}\n".encode() for text in (MARKUP, TEMPLATE, DIRECTION, ANSI)))
    cluster.write(
        name_of(first), BYTES + b"\n", LONG.encode() + b"\n", b"10 %\r20 %\r" + MARKUP.encode() + b"\r\n", b"\0\1\x7f\n"
    )
    cluster.write(name_of(first), json.dumps({"loss": 1.0, "__proto__": 2.0, MARKUP: 3.0, "step": 3}).encode() + b"\n")


def failed_job(cluster: PageCluster) -> None:
    ended = condition("Failed", 1, "Failed", ALL + LONG[:20000])
    made = cluster.add_job(trainjob("failed"), conditions=[ended])
    state = {"exitCode": 1, "reason": "Error", "message": ALL + ANSI, "startedAt": ago(3), "finishedAt": ago(2)}
    pod = cluster.add_pod(made, phase="Failed", terminated=state)
    cluster.write(name_of(pod), MARKUP.encode() + b"\n", BYTES + b"\n", ANSI.encode() + b"\n", LONG.encode() + b"\n")


def garbled_job(cluster: PageCluster) -> None:
    """Times and numbers that make no sense."""
    made = cluster.add_job(trainjob("garbled"))
    pod = cluster.add_pod(made, running={"startedAt": ago(1)})
    cluster.add_event(pod, "Odd", "odd")
    times = ["garbage", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "", MARKUP]
    conditions = [{"type": f"Kind{at}", "status": "True", "lastTransitionTime": time} for at, time in enumerate(times)]
    metrics = [{"name": "loss", "value": "1e309"}, {"name": "step", "value": "-5"}, {"name": "epoch", "value": "1e300"}]
    told = {"progressPercentage": -40, "estimatedRemainingSeconds": -(2**62), "metrics": metrics, "lastUpdatedTime": "garbage"}
    cluster.changes["TrainJob", "garbled"] = {
        "metadata": {"creationTimestamp": "9998-01-01T00:00:00Z"},
        "spec": {"trainer": {"numNodes": -(2**62)}},
        "status": {"conditions": conditions, "trainerStatus": told},
    }
    states = [
        {"name": "a", "restartCount": -5, "state": {"running": {"startedAt": "garbage"}}},
        {
            "name": "b",
            "restartCount": 2**53,
            "state": {"terminated": {"exitCode": -(2**40), "finishedAt": "9999-01-01T00:00:00Z"}},
        },
        {"name": "c", "restartCount": 0, "state": {"waiting": {}}},
        {"name": "d", "restartCount": 0, "state": {}},
    ]
    cluster.changes["Pod", name_of(pod)] = {"metadata": {"creationTimestamp": MARKUP}, "status": {"containerStatuses": states}}


def write_run(workspace: Path) -> None:
    (workspace / "runs").mkdir(parents=True)
    begin_run(workspace, "runs/run-1", run=f"run-1 {ALL}", owner=ALL + LONG[:5000], dataset="sha256:" + "d" * 64)
    begin_run(workspace, "runs/run-2", run=DIRECTION, owner=ADDRESS, inputs={"__proto__": {"constructor": MARKUP}})
    folder = workspace / "runs" / "run-1"
    (folder / "output" / "checkpoint-5").mkdir(parents=True)
    history = [{"step": step, **dict.fromkeys(NAMES, 1.0 / step)} for step in range(1, 200)]
    odd: list[dict[str, Any]] = [{"step": 200, "loss": math.nan}, {"step": 201, "loss": -math.inf}, {"step": 202, "loss": 1e308}]
    odd += [{"step": -1, "loss": 1.0}, {"step": 2**60, "loss": 1.0}, {"step": "x", "loss": 1.0}, {"step": 203, "loss": MARKUP}]
    odd += [{"step": step, "only-nan": math.nan} for step in range(3)]
    (folder / "output" / "checkpoint-5" / "trainer_state.json").write_text(json.dumps({"log_history": history + odd}))
    (folder / "dataset-report.md").write_text(REPORT)
    (folder / "notes.txt").write_bytes(BYTES + ALL.encode() + LONG.encode())
    (folder / f"{MARKUP.replace('/', '')[:100]}.txt").write_text("named so")
    figures = dict.fromkeys(NAMES, 1.5)
    sample = {"prompt": ALL, "expected": LONG, "before": ANSI, "after": DIRECTION, "__proto__": MARKUP}
    result = {"before": {"loss": 3.0, "toString": 1}, "after": {**figures, "loss": math.inf}, "sample": sample, "rows": -1}
    (folder / "evaluation" / "0123456789ab").mkdir(parents=True)
    (folder / "evaluation" / "0123456789ab" / "result.json").write_text(json.dumps(result))


def write_exports(exports: Path) -> None:
    metadata: dict[str, Any] = {"origin": {"dataset": ALL, "model": LONG}, "owner": ALL, "__proto__": {"constructor": ALL}}
    settings = {"r": 8, "__proto__": 1, "constructor": ALL, "text": LONG}
    files = {
        "README.md": REPORT.encode(),
        "adapter_config.json": json.dumps(settings).encode(),
        f"{MARKUP.replace('/', '')}.txt": b"x",
    }
    figures = dict.fromkeys(NAMES, -1e308)
    write_export(exports, "one", files=files, metrics=figures, metadata=metadata, source=ALL, created=MARKUP, supersedes=ALL)
    other = json.dumps({"r": 16, "constructor": 1}).encode()
    write_export(exports, "one", "checkpoint-10", metrics={"loss": 0.0}, files={"adapter_config.json": other}, created="garbage")
    write_export(exports, f"<img src=x onerror=window.owned=1>{DIRECTION}", "checkpoint-7")
    alias = Alias(f"file://{exports}")
    for name in ("checkpoint-5", "checkpoint-10"):
        alias.promote(f"file://{exports}/one/{name}", evaluation=figures, reason=ALL)


def record_launch(folder: LaunchFolder) -> None:
    folder.note("started")
    folder.note("begin", step="start")
    folder.note("end", step="start", note=ALL)
    folder.note("memory", fits=False, text=ALL)
    if folder.run == "failed":
        folder.note("failed", step="start", message=f"{ALL}\n{LONG[:2000]}")
        return
    evaluation = {"before": {"loss": 1.0}, "after": dict.fromkeys(NAMES, 1.5)}
    checkpoint = {"uri": ADDRESS, "digest": MARKUP}
    registration = {"uri": ADDRESS}
    facts: dict[str, Any] = {"checkpoint": checkpoint, "registration": registration, "promotion": {"reason": ALL}}
    folder.note("succeeded", result={"summary": ALL + LONG[:1000], "evaluation": evaluation, **facts})


def go(shown: Shown, route: str, values: dict[str, str], words: tuple[str, ...]) -> None:
    query = urlencode({name: value.replace("EXPORTS", shown.exports) for name, value in values.items()})
    shown.window.script("location.hash = arguments[0]", f"#{route}{f'?{query}' if query else ''}")
    shown.window.wait_for(*words)


def unsafe(window: Browser) -> list[str]:
    """What texts have done to the page as it is shown."""
    found: list[str] = window.script(
        """
        const found = [];
        if (window.owned !== undefined) found.push("a script ran");
        if ({}.constructor !== Object || Object.keys(Object.prototype).length) found.push("the prototype of objects is changed");
        if (document.querySelectorAll("script").length !== 2) found.push("there is another script");
        for (const each of document.querySelectorAll("main img, main svg, iframe, object, embed, [onerror], [onload]"))
          found.push("there is an element: " + each.outerHTML.slice(0, 100));
        for (const each of document.querySelectorAll("a[href], form[action], [src]")) {
          const address = each.getAttribute("href") || each.getAttribute("action") || each.getAttribute("src");
          const isOurs = /^(#|https:\\/\\/example\\.com\\/|js\\/main\\.js$|icon\\.svg$)/.test(address);
          if (!isOurs) found.push("there is a link: " + address.slice(0, 100));
        }
        const width = document.documentElement.scrollWidth;
        if (width > innerWidth) found.push(`the page is ${width} pixels wide`);
        if (document.body.innerText.includes("This view has failed")) found.push(document.body.innerText.slice(0, 500));
        if (document.body.innerText.includes("native code")) found.push("a function is shown");
        if (document.body.innerText.includes("[object Object]")) found.push("an object is shown");
        const top = document.querySelector("main h1").getBoundingClientRect().top + scrollY;
        if (top > 260) found.push(`the heading begins at ${top}`);
        return found;
        """
    )
    return found


@pytest.mark.parametrize("width", [1280, pytest.param(360, marks=pytest.mark.wide(part="browser"))])
def test_texts_of_others_do_nothing(shown: Shown, width: int) -> None:
    window = shown.window
    window.resize(width, 800)
    found = []
    for number, (route, values, words) in enumerate(VIEWS):
        go(shown, route, values, words)
        window.picture(f"hostile-{number:02}-{width}")
        found += [f"{route} {values}: {problem}" for problem in unsafe(window)]
        messages = [each for each in window.messages() if "Failed to load resource" not in each or "/ui/api/" not in each]
        found += [f"{route} {values}: {message[:300]}" for message in messages]
    assert "\n".join(found) == ""


def test_nothing_of_other_origins_is_asked_for(shown: Shown) -> None:
    """After all views: the images and trackers in them were never loaded."""
    assert [address for address in shown.window.requests() if not address.startswith("http://127.0.0.1")] == []


def test_the_page_stays_usable_beside_hostile_jobs(shown: Shown) -> None:
    window = shown.window
    window.resize(360, 800)
    go(shown, "/jobs/default/hostile", {}, ("Suspend", "Conditions"))
    window.click("Suspend")
    window.wait_for("TrainJob default/hostile")
    window.click("Cancel")
    window.click("Curves")
    window.click("3 other metrics")
    window.wait_for("constructor as a table", "__proto__ as a table")
    assert unsafe(window) == []
    window.click("constructor as a table")
    window.click("Logs")
    window.wait_for("window.owned=1")
    window.type(".search-field", "<script>")
    window.wait_for("of 3 lines")
    window.click("Runs")
    window.wait_for("run-1 <script>")
    assert unsafe(window) == []


def test_live_changes_with_hostile_texts_are_shown(shown: Shown) -> None:
    window, cluster = shown.window, shown.cluster
    window.resize(1280, 800)
    go(shown, "/jobs", {"q": "", "ns": ""}, ("3 TrainJobs",))
    made: Obj = cluster.add_job(trainjob("late"), conditions=[condition("Failed", 0, "Failed", f"late {MARKUP}")])
    window.wait_for("4 TrainJobs", "late <script>")
    go(shown, "/jobs/default/late", {}, ("Conditions", "late <script>"))
    cluster.add_event(made, "Late", f"event {ALL}")
    cluster.update_status({**made, "status": {"conditions": [condition("Failed", 0, "Failed", f"later {MARKUP}")]}})
    window.wait_for("later <script>", "event <script>")
    assert unsafe(window) == []
