"""A real job on a real control plane, as its owner sees it: all arrives without a reload, and after a restart of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from factories import catalogue_runtime, trainjob
from support.browser import Browser, browser
from support.waiting import eventually

from trainwright.api.kinds import POD, TRAINJOB
from trainwright.api.names import JOBSET_NAME_LABEL
from trainwright.cli.page_link import link_to
from trainwright.cluster.connect import connect
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.embedded.home import Home
from trainwright.embedded.lifecycle import start, stop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
# Trains until the file END appears, which has its exit code. Prints every step, and reports it if it is told where.
PROGRAM = """
import json, os, pathlib, signal, ssl, sys, time, urllib.request
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
end, told = pathlib.Path(sys.argv[1]), lambda name: os.environ["KUBEFLOW_TRAINER_SERVER_" + name]
for step in range(1, 10_000):
    if end.exists():
        code = int(end.read_text())
        if code:
            print("ValueError: the data has no rows", flush=True)
        sys.exit(code)
    loss = 1 + 1 / step
    print(f"training step {step}, loss {loss:.3f}", flush=True)
    if "KUBEFLOW_TRAINER_SERVER_URL" in os.environ:
        metrics = [{"name": "loss", "value": str(loss)}, {"name": "step", "value": str(step)}]
        report = {"progressPercentage": min(99, step), "metrics": metrics}
        headers = {"Authorization": "Bearer " + pathlib.Path(told("TOKEN")).read_text(), "Content-Type": "application/json"}
        request = urllib.request.Request(told("URL"), json.dumps({"trainerStatus": report}).encode(), headers, method="POST")
        context = ssl.create_default_context(cafile=told("CA_CERT"))
        urllib.request.urlopen(request, context=context, timeout=10).read()
    time.sleep(0.3)
"""
_POINTS = "return document.querySelectorAll('.chart tbody tr').length"
_NEWEST = r"return Math.max(0, ...[...document.body.innerText.matchAll(/training step (\d+)/g)].map(each => Number(each[1])))"
_PERCENT = "return Number(document.querySelector('[role=progressbar]')?.getAttribute('aria-valuenow') || 0)"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    made = Home(tmp_path_factory.mktemp("live") / "home")
    start(made)
    runtime = catalogue_runtime("torch-distributed")
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    job["template"]["spec"]["backoffLimit"] = 0
    job["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    connect(made.kubeconfig).create({**runtime, "metadata": {**runtime["metadata"], "name": "once"}})
    yield made
    stop(made)


@pytest.fixture
def cluster(home: Home) -> KubernetesCluster:
    return connect(home.kubeconfig)


@pytest.fixture(scope="module")
def _tab() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture
def window(_tab: Browser, home: Home) -> Iterator[Browser]:
    """A browser on the list of jobs. At the end, it must be the same page: a reload would have lost the mark."""
    _tab.open("about:blank")
    _tab.open(link_to(home))
    _tab.wait_for("TrainJobs", "live")
    _tab.script("window.mark = true")
    yield _tab
    assert _tab.script("return window.mark === true")


def begin(cluster: KubernetesCluster, folder: Path, name: str, *, runtime: str = "torch-distributed") -> Path:
    """Create a job; returns the file that ends it."""
    program, end = folder / "program.py", folder / "end"
    program.write_text(PROGRAM)
    cluster.create(trainjob(name, runtime=runtime, script=f"exec python -u {program} {end}"))
    return end


def go(window: Browser, route: str, *words: str) -> None:
    window.script("location.hash = arguments[0]", f"#{route}")
    window.wait_for(*words)


def confirm(window: Browser, action: str, name: str) -> None:
    """Press a button of a job, and the one in the dialog that it opens."""
    window.click(action)
    window.wait_for(f"{action}: TrainJob default/{name}")
    window.script("[...document.querySelectorAll('dialog button')].at(-1).click()")
    eventually(lambda: window.count("dialog") == 0, 20, f"the end of the dialog of {action}")


def test_progress_curves_and_log_arrive_while_a_job_trains(window: Browser, cluster: KubernetesCluster, tmp_path: Path) -> None:
    end = begin(cluster, tmp_path, "steady")
    window.wait_for("steady", "Running", seconds=60)
    first = eventually(lambda: window.script(_PERCENT), 30, "progress in the list")
    eventually(lambda: window.script(_PERCENT) > first, 30, "more progress in the list")
    window.click("steady")
    window.wait_for("Timeline", "Running", "loss")
    go(window, "/jobs/default/steady/curves", "loss as a table")
    window.click("loss as a table")
    points = eventually(lambda: window.script(_POINTS), 30, "points of a curve")
    eventually(lambda: window.script(_POINTS) > points + 2, 30, "more points")
    go(window, "/jobs/default/steady/logs", "training step")
    line = eventually(lambda: window.script(_NEWEST), 30, "lines of the log")
    eventually(lambda: window.script(_NEWEST) > line + 2, 30, "more lines")
    end.write_text("0")
    window.wait_for("Succeeded", "ended", seconds=60)
    go(window, "/jobs/default/steady", "Succeeded", "100 %", "completed")
    assert window.messages() == []


def test_a_job_is_suspended_and_resumed_on_the_page(window: Browser, cluster: KubernetesCluster, tmp_path: Path) -> None:
    end = begin(cluster, tmp_path, "paused")
    go(window, "/jobs/default/paused", "Running")
    confirm(window, "Suspend", "paused")
    window.wait_for("Suspended", "it is suspended", seconds=60)
    assert cluster.get(TRAINJOB, "paused", "default")["spec"]["suspend"] is True
    eventually(
        lambda: not cluster.list(POD, "default", label_selector=f"{JOBSET_NAME_LABEL}=paused").items, 60, "the end of its pods"
    )
    confirm(window, "Resume", "paused")
    window.wait_for("it is resumed", "Running", seconds=60)
    end.write_text("0")
    window.wait_for("Succeeded", seconds=60)


def test_a_failure_appears_with_its_report(window: Browser, cluster: KubernetesCluster, tmp_path: Path) -> None:
    end = begin(cluster, tmp_path, "broken", runtime="once")
    go(window, "/jobs/default/broken", "Running")
    end.write_text("3")
    window.wait_for("Failed", "Why it failed", "exited 3", "ValueError: the data has no rows", seconds=60)
    go(window, "/jobs", "Failed 1", "broken")


def test_job_in_a_crash_loop_shows_why_it_fails(window: Browser, cluster: KubernetesCluster, tmp_path: Path) -> None:
    end = begin(cluster, tmp_path, "looping")
    go(window, "/jobs/default/looping", "Running")
    end.write_text("3")
    window.wait_for("Why it fails", "exited 3", "ValueError: the data has no rows", seconds=60)


def test_the_page_of_a_deleted_job_keeps_its_last_state(window: Browser, cluster: KubernetesCluster, tmp_path: Path) -> None:
    begin(cluster, tmp_path, "doomed")
    go(window, "/jobs/default/doomed", "Running", "Suspend")
    cluster.delete(TRAINJOB, "doomed", "default")
    window.wait_for("The job was deleted. This is its last state.", "Timeline", seconds=60)
    assert window.count(".actions button") == 0
    go(window, "/jobs", "TrainJobs", "live")
    window.wait_until_gone("doomed")


def test_an_open_page_recovers_from_a_restart_of_the_control_plane(
    window: Browser, home: Home, cluster: KubernetesCluster, tmp_path: Path
) -> None:
    end = begin(cluster, tmp_path, "durable")
    go(window, "/jobs/default/durable", "Running", "live")
    stop(home)
    window.wait_for("connecting …", "does not answer")
    go(window, "/jobs/default/durable/objects", "does not answer")
    start(home)
    window.wait_for("durable", "live", "Running", "JobSet", seconds=90)
    window.wait_until_gone("does not answer")
    go(window, "/jobs/default/durable/logs", "training step")
    line = eventually(lambda: window.script(_NEWEST), 30, "lines of the log")
    eventually(lambda: window.script(_NEWEST) > line, 30, "more lines")
    end.write_text("0")
    window.wait_for("Succeeded", seconds=60)
    go(window, "/jobs", "live")
    begin(connect(home.kubeconfig), tmp_path, "after").write_text("0")
    window.wait_for("after", seconds=60)
