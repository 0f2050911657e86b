"""With a guard beside them, runs that end in any way leave no job running: on a busy cluster, where steps and exit handlers fail.

A step that is tried again keeps its job.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from backend import Backend, PipelineRun
from step_cluster import TRAINING, StepCluster
from support.on_first_use import OnFirstUse
from support.rounds import IS_LONG
from support.waiting import eventually
from workflow_controller import BUSY, QUIET, Pace

from trainwright.api import names
from trainwright.api.conditions import is_finished, is_true
from trainwright.api.objects import Obj, annotations_of, generation_of, name_of
from trainwright.steps.training.own_step import OwnStep

shipped = OnFirstUse("trainwright.components")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

REPETITIONS = 5 if IS_LONG else 1
SECONDS = 60.0
"""Within which no job of a run that has ended runs any more."""
AS_ON_A_BUSY_CLUSTER = Pace(10.0, 12.0) if IS_LONG else BUSY


@dataclass
class Table:
    """Seconds until no job of a run was active, by the way in which it ended; None for one that still was after `SECONDS`."""

    seconds: dict[str, list[float | None]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        yield f"{'how the run ended':32} {'n':>3} {'active after 60 s':>18} {'slowest, s':>11}"
        for how, found in self.seconds.items():
            ended = [each for each in found if each is not None]
            yield f"{how:32} {len(found):3} {len(found) - len(ended):18} {max(ended, default=0):11.1f}"


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    table = Table()
    yield table
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("", *table.lines(), sep="\n")


class Guard:
    """`trainwright guard` as a process."""

    def __init__(self, steps: StepCluster, log: Path):
        command = [sys.executable, "-m", "trainwright.cli", "guard", "--kubeconfig", str(steps.kubeconfig)]
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, "NO_PROXY": "127.0.0.1"})
        self.log = log
        eventually(lambda: b"event=guard_started" in log.read_bytes(), what="the guard starts")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def guard(steps: StepCluster, tmp_path: Path) -> Iterator[Callable[[], Guard]]:
    """Starts guards, which end with the test."""
    started: list[Guard] = []

    def start() -> Guard:
        started.append(Guard(steps, tmp_path / f"guard-{len(started)}.log"))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def train(steps: StepCluster, run: PipelineRun, **settings: Any) -> str:
    """Start a training step and wait until its job trains; returns the name of the job."""
    told = {"run_id": run.id, "runtime": TRAINING, "command": steps.command(), **settings}
    run.start(shipped.train, told)
    name = OwnStep("train", "pipeline").identity(run.id, "train").name()
    eventually(steps.file(name).exists, 60, "the training runs")
    return name


def is_active(job: Obj) -> bool:
    return not (job["spec"].get("suspend") or is_finished(job) or job["metadata"].get("deletionTimestamp"))


def seconds_active(steps: StepCluster, run: PipelineRun) -> float | None:
    """Seconds from now until no job of the run is active; None if one still is after `SECONDS`."""
    began = time.monotonic()
    try:
        eventually(lambda: not any(map(is_active, steps.jobs(run.id))), SECONDS, "the jobs of the run end")
    except AssertionError:
        return None
    return time.monotonic() - began


ENDS: dict[str, tuple[Callable[[PipelineRun], None], bool]] = {
    "terminated": (lambda run: run.terminate(is_heard=False), False),
    "terminated, with exit handler": (lambda run: run.terminate(is_heard=False), True),
    "deleted": (lambda run: run.delete(), False),
    "launcher killed": (lambda run: run.steps[0].pod.kill_launcher(), False),
    "all processes killed": (lambda run: run.steps[0].pod.kill(), False),
}
"""Ways in which a run may end, and whether it has an exit handler."""


@pytest.mark.parametrize("repetition", range(REPETITIONS))
@pytest.mark.parametrize("how", ENDS)
def test_no_job_is_active_after_its_run(
    steps: StepCluster, backend: Backend, guard: Callable[[], Guard], table: Table, how: str, repetition: int
) -> None:
    guard()
    end, has_handler = ENDS[how]
    run = backend.run()
    train(steps, run, ending={"tie_to_run": repetition % 2 == 0})  # else nothing but the guard ends it with its workflow
    controller = run.follow(AS_ON_A_BUSY_CLUSTER, has_handler=has_handler)
    end(run)
    seconds = seconds_active(steps, run)
    table.seconds.setdefault(how, []).append(seconds)
    assert seconds is not None
    assert not controller.has_cleaned_up, "Argo fails the nodes of the handler while they are pending"


@pytest.mark.parametrize(("pace", "template_defaults"), [(QUIET, True), (BUSY, False)], ids=["quiet", "onExit is spared"])
def test_exit_handler_runs_on_a_quiet_cluster_or_if_its_nodes_are_spared(
    steps: StepCluster, backend: Backend, pace: Pace, template_defaults: bool
) -> None:
    run = backend.run()
    run.has_template_defaults = template_defaults
    train(steps, run)
    controller = run.follow(pace, has_handler=True)
    run.terminate(is_heard=False)
    assert seconds_active(steps, run) is not None
    eventually(lambda: controller.has_cleaned_up)


def test_without_a_guard_a_terminated_run_trains_on(steps: StepCluster, backend: Backend) -> None:
    run = backend.run()
    name = train(steps, run)
    controller = run.follow(BUSY, has_handler=True)
    run.terminate(is_heard=False)
    controller.join(30)
    assert not controller.is_alive()
    (job,) = steps.jobs(run.id)
    assert is_active(job)
    assert steps.pods(name)


def test_deleted_pod_that_is_tried_again_keeps_its_job(steps: StepCluster, backend: Backend, guard: Callable[[], Guard]) -> None:
    guard()
    run, probe = backend.run(), backend.run()
    name = train(steps, run)
    train(steps, probe)
    run.follow()
    probe.follow()
    step, first = run.steps[0], run.steps[0].pod
    first.was_deleted = first.is_lost = True
    first.kill()
    probe.terminate(is_heard=False)
    assert seconds_active(steps, probe) is not None, "the guard acts"
    eventually(lambda: "event=trainjob_adopted" in step.log(), 60, "the next try adopts the job")
    (job,) = steps.jobs(run.id)
    assert generation_of(job) == 1, "nobody has suspended it in between"
    eventually(lambda: step.pod.name in annotations_of(steps.jobs(run.id)[0])[names.WAITING_POD_ANNOTATION])
    steps.file(name, what="go").touch()
    assert step.wait().succeeded
    assert is_true(steps.jobs(run.id)[0], "Complete")


def test_guards_that_are_killed_and_started_again_lose_nothing(
    steps: StepCluster, backend: Backend, guard: Callable[[], Guard]
) -> None:
    first = guard()
    ended, deleted, goes_on = backend.run(), backend.run(), backend.run()
    for run in (ended, deleted, goes_on):
        train(steps, run, ending={"tie_to_run": run is not deleted})
    first.kill()
    ended.follow()
    ended.terminate(is_heard=False)
    deleted.delete()
    for _ in range(2):  # two at once
        guard()
    for run in (ended, deleted):
        assert seconds_active(steps, run) is not None
        (job,) = steps.jobs(run.id)
        assert generation_of(job) == 2, f"{name_of(job)} was suspended once"
    assert is_active(steps.jobs(goes_on.id)[0])
