"""Whenever and however a step of Kubeflow Pipelines ends, no TrainJob of its run is left running after the exit handler.

A step has up to a second between its signal and its end; what it does not get done is left to the component clean_up.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from backend import RETRIES, Backend, PipelineRun, RunningStep
from servers.faulty_api import FaultyApi
from step_cluster import FULL_QUEUE, INITIALIZING, TRAINING, StepCluster
from support.on_first_use import OnFirstUse
from support.rounds import IS_LONG
from support.waiting import eventually

from trainwright.api import names
from trainwright.api.conditions import condition, is_finished, is_true
from trainwright.api.objects import Obj, annotations_of, labels_of, name_of, owners_of, uid_of
from trainwright.checkpoints.catalog import read_catalog
from trainwright.checkpoints.export_run import exports_of_run
from trainwright.checkpoints.restore import verify_export
from trainwright.steps.training.own_step import OwnStep
from trainwright.storage import open_store
from trainwright.storage.uri import StorageUri

shipped = OnFirstUse("trainwright.components")

REPETITIONS = 20 if IS_LONG else 1
MAX_DELAY_SECONDS = 1.0
EXPORT_SECONDS = 0.5
"""As long as the export of the checkpoint takes, or longer."""
IGNORES_SIGTERM = """
set -eu
trap '' TERM
exec 9>"$0.alone"
flock -n 9 || { touch "$0.twice"; exit 1; }
touch "$0"
until [ -e "$0.go" ]; do sleep 0.05; done
"""
"""A training that holds a lock until it ends, and says so if another process has it."""
GRACE_SECONDS_OF_TRAINING = 3
REQUESTS, NO_FAULTS = 16, -1
"""At least so many requests does a step send until its job runs, about half of them before it is created."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.parametrize("repetition", range(REPETITIONS)),
]


@dataclass
class Statistics:
    """Who has suspended the jobs that had to be, by scenario."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)

    def count(self, scenario: str, what: str) -> None:
        self.counts.setdefault(scenario, Counter())[what] += 1

    def lines(self) -> Iterator[str]:
        total, width = sum(self.counts.values(), Counter[str]()), max(map(len, self.counts), default=0)
        for scenario, counts in {**self.counts, "all": total}.items():
            parts = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
            yield f"{scenario:{width}} {counts.total():4}: {parts}"


@pytest.fixture(scope="module")
def statistics(request: pytest.FixtureRequest) -> Iterator[Statistics]:
    statistics = Statistics()
    yield statistics
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("\nsteps that ended early, and what suspended their jobs")
        print(*statistics.lines(), sep="\n")


class Scene:
    """A run whose one step trains, or waits to, and what was seen of it."""

    def __init__(self, name: str, repetition: int, steps: StepCluster, backend: Backend, statistics: Statistics):
        self.name, self.steps, self._backend, self._statistics = name, steps, backend, statistics
        self.random = random.Random(f"{name}/{repetition}")
        self.run: PipelineRun = backend.run()
        self.run_id, self.mode = self.run.id, ""
        self.step: RunningStep

    @property
    def trainjob(self) -> str:
        """The name of the job of the first attempt."""
        return OwnStep("train", "pipeline").identity(self.run_id, "train").name()

    @property
    def jobs(self) -> list[Obj]:
        return self.steps.jobs(self.run_id)

    @property
    def job(self) -> Obj:
        """The one job of the run."""
        (job,) = self.jobs
        return job

    def reach_the_cluster_through(self, api: FaultyApi) -> None:
        self.run = self._backend.run(kubeconfig=api.kubeconfig)
        self.run_id = self.run.id

    def run_again(self) -> None:
        """Start a run of the pipeline with the id of this one."""
        self.run = self._backend.run()
        self.train()

    def train(self, *, retries_failures: bool = False, **arguments: Any) -> None:
        """Start the step. Only a backend without `templateDefaults` tries a program again that has failed."""
        own = {"run_id": self.run_id, "runtime": TRAINING, "command": self.steps.command()}
        told = {**own, **arguments, "placement": {"submission_mode": self.mode, **arguments.get("placement", {})}}
        self.run.has_template_defaults = not retries_failures
        self.step = self.run.start(shipped.train, told, set_retry=RETRIES if retries_failures else 0)

    def file(self, step: str = "node", what: str = "", trainjob: str = "") -> Path:
        return self.steps.file(trainjob or self.trainjob, step, what)

    def pause(self) -> None:
        """A while of its own for each repetition: what the step does at the moment is left to chance."""
        time.sleep(self.random.uniform(0, MAX_DELAY_SECONDS))

    def end_early(self, how: Callable[[], object], *, left_to: str = "the exit handler") -> None:
        """End the step's container, and count what it has done to its jobs until it was gone. `left_to` is what comes next."""
        pod, before = self.step.pod, {uid_of(job) for job in self.jobs if _is_stopped(job)}
        how()
        eventually(lambda: not pod.is_running, what="the container ends")
        for what in [_stopped_by(job, before, left_to) for job in self.jobs] or ["without a job"]:
            self._statistics.count(self.name, what)

    def finish(self, state: str, *, jobs: tuple[int, ...] = (1,)) -> None:
        """Run the exit handler and check what it leaves, and how many jobs there are."""
        cleaned = self.run.finish(state, run_id=self.run_id, submission_mode=self.mode)
        assert cleaned.succeeded, cleaned.log
        left = self.jobs
        running = [name_of(job) for job in left if not _is_stopped(job)]
        assert not running, f"jobs are left running\n{self.step.log()}\n{cleaned.log}"
        assert len(left) in jobs, [name_of(job) for job in left]
        assert self.run.processes() == []
        for job in left:
            eventually(lambda job=job: not self.steps.pods(name_of(job)), what="the pods of the job end")


def _is_stopped(job: Obj) -> bool:
    return bool(job["spec"].get("suspend")) or is_finished(job)


def _stopped_by(job: Obj, before: set[str], left_to: str) -> str:
    if uid_of(job) in before:
        return "queued or ended before"
    return "suspended by the step" if _is_stopped(job) else f"left to {left_to}"


@pytest.fixture
def scene(request: pytest.FixtureRequest, repetition: int, steps: StepCluster, backend: Backend, statistics: Statistics) -> Scene:
    return Scene(request.node.originalname.removeprefix("test_"), repetition, steps, backend, statistics)


def is_unschedulable(scene: Scene) -> bool:
    scheduled = (condition(pod, "PodScheduled") for pod in scene.steps.pods(scene.trainjob))
    return any(found is not None and found.get("reason") == "Unschedulable" for found in scheduled)


def is_queued(scene: Scene) -> bool:
    return bool(scene.jobs) and condition(scene.job, names.QUOTA_RESERVED) is not None


def is_initializing(scene: Scene) -> bool:
    return scene.file("initializer").exists()


def is_training(scene: Scene) -> bool:
    return scene.file().exists()


STAGES: dict[Callable[[Scene], bool], dict[str, Any]] = {
    is_unschedulable: {"placement": {"node_selector": {"no": "node"}}},
    is_queued: {"placement": {"queue_name": FULL_QUEUE}, "resources_per_node": {"cpu": "1"}},
    is_initializing: {"runtime": INITIALIZING},
    is_training: {},
}
"""How far a job has come when its run is terminated, and the arguments with which it stays there."""


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_a_run_killed_while_its_job(scene: Scene, stage: Callable[[Scene], bool]) -> None:
    scene.name = f"{scene.name} {stage.__name__}"
    scene.train(**STAGES[stage])
    eventually(lambda: stage(scene), what=stage.__name__)
    scene.pause()
    scene.end_early(scene.run.terminate)
    assert scene.step.wait().exit_code == 143
    if stage is is_queued:  # its queue would start it later
        scene.finish("RUNNING", jobs=(0,))
        return
    scene.finish("RUNNING")
    assert labels_of(scene.job)[names.WORKFLOW_LABEL] == scene.run.workflow.name
    assert [owner["uid"] for owner in owners_of(scene.job)] == [scene.run.workflow.uid]
    assert annotations_of(scene.job)[names.SUSPENDED_BY_ANNOTATION], "the same step resumes it"


def test_a_step_killed_at_its_deadline(scene: Scene) -> None:
    scene.train()
    eventually(lambda: is_training(scene))
    scene.pause()
    scene.end_early(scene.step.time_out)
    assert not scene.step.wait().succeeded
    assert len(scene.step.pods) == 1
    scene.finish("FAILED")


def test_a_step_killed_right_after_its_start(scene: Scene, seconds_to_train: float) -> None:
    scene.train()
    time.sleep(scene.random.uniform(0, seconds_to_train))
    scene.end_early(scene.run.terminate)
    scene.step.wait()
    scene.finish("RUNNING", jobs=(0, 1))


@pytest.fixture(scope="module")
def seconds_to_train(steps: StepCluster) -> Iterator[float]:
    """How long a step takes from its start until its job runs."""
    backend = Backend(steps.cluster, steps.kubeconfig, steps.folder / "runs")
    scene = Scene("start", 0, steps, backend, Statistics())
    began = time.monotonic()
    scene.train()
    eventually(lambda: is_training(scene))
    seconds = time.monotonic() - began
    scene.file(what="go").touch()
    assert scene.step.wait().succeeded
    yield seconds
    backend.close()


def test_a_step_killed_at_a_request_of_its_submission(scene: Scene, tmp_path: Path) -> None:
    """Some of them come before the one that creates the job, some after it."""
    with FaultyApi(tmp_path, scene.steps.kubeconfig, NO_FAULTS) as api:
        scene.reach_the_cluster_through(api)
        number, seen, killed = scene.random.randrange(2 * REQUESTS), list[str](), threading.Event()

        def held(when: str, kind: str) -> None:
            seen.append(f"{when} {kind}")
            if len(seen) == number + 1:
                scene.run.terminate()
                killed.set()

        api.held = held
        scene.train()
        scene.end_early(lambda: killed.wait(30))
        scene.step.wait()
        scene.finish("RUNNING", jobs=(int("before create" in seen),))


@pytest.mark.parametrize("mode", ["trainjob", "jobset"])
def test_a_run_killed_and_run_again_goes_on_with_its_job(scene: Scene, mode: str) -> None:
    scene.mode = mode
    scene.train()
    eventually(lambda: is_training(scene))
    uid = uid_of(scene.job)
    scene.pause()
    scene.end_early(scene.run.terminate)
    scene.step.wait()
    scene.finish("RUNNING")
    scene.run_again()
    _goes_on_to_its_end(scene)
    assert uid_of(scene.job) == uid
    scene.finish("SUCCEEDED")


def test_a_step_whose_pod_is_killed_adopts_its_job(scene: Scene) -> None:
    scene.train()
    eventually(lambda: is_training(scene))
    first, uid = scene.step.pod, uid_of(scene.job)
    scene.pause()
    scene.end_early(scene.step.delete_pod, left_to="the retry")
    _goes_on_to_its_end(scene)
    assert uid_of(scene.job) == uid
    assert len(scene.step.pods) == 2
    assert first.processes() == []
    scene.finish("SUCCEEDED")


def test_a_training_that_ignores_sigterm_never_runs_twice(scene: Scene, tmp_path: Path) -> None:
    """Its Job makes a new pod when it is resumed, although the old one still ends: torch-distributed as it is installed."""
    began = tmp_path / "began"
    pod = {"spec": {"terminationGracePeriodSeconds": GRACE_SECONDS_OF_TRAINING}}
    job = {"name": "node", "template": {"spec": {"template": pod}}}
    patch = {"manager": "example.com/grace", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}
    scene.train(
        runtime="torch-distributed", command=["bash", "-c", IGNORES_SIGTERM, str(began)], placement={"runtime_patches": [patch]}
    )
    eventually(began.exists, what="the training runs")
    began.unlink()
    scene.end_early(scene.step.delete_pod, left_to="the retry")
    eventually(began.exists, what="the training runs again")
    assert len(scene.step.pods) == 2
    assert not began.with_name("began.twice").exists()
    began.with_name("began.go").touch()
    assert scene.step.wait().succeeded
    scene.finish("SUCCEEDED")


def test_a_step_whose_program_is_killed_adopts_its_job(scene: Scene) -> None:
    """As the kernel kills it when memory is exhausted: it hears of nothing, and the launcher makes an exit code 1 of it."""
    scene.train(retries_failures=True)
    eventually(lambda: is_training(scene))
    uid = uid_of(scene.job)
    scene.pause()
    scene.end_early(scene.step.kill_program, left_to="the retry")
    assert not _is_stopped(scene.job)
    _goes_on_to_its_end(scene)
    assert uid_of(scene.job) == uid
    assert len(scene.step.pods) == 2
    scene.finish("SUCCEEDED")


def test_a_step_whose_program_is_killed_for_good(scene: Scene) -> None:
    scene.train()
    eventually(lambda: is_training(scene))
    scene.pause()
    scene.end_early(scene.step.kill_program)
    end = scene.step.wait()
    assert (end.succeeded, end.exit_code, len(scene.step.pods)) == (False, 1, 1)
    scene.finish("FAILED")


class FaultsLater(FaultyApi):
    """The proxy, without faults until it gets a seed. Lists are never stale: the exit handler reads what is stored, from no cache."""

    def fault_for(self, kind: str) -> str:
        return super().fault_for("get" if kind == "list-jobs" else kind)


def test_a_program_killed_before_an_exit_handler_that_meets_faults(scene: Scene, repetition: int, tmp_path: Path) -> None:
    with FaultsLater(tmp_path, scene.steps.kubeconfig, NO_FAULTS) as api:
        scene.reach_the_cluster_through(api)
        scene.train()
        eventually(lambda: is_training(scene))
        scene.end_early(scene.step.kill_program)
        scene.step.wait()
        api.seed = repetition
        scene.finish("FAILED")


def test_a_run_killed_in_the_retry_of_a_step_that_has_failed(scene: Scene) -> None:
    scene.train(retries_failures=True)
    eventually(lambda: is_training(scene))
    scene.file(what="fail").touch()
    eventually(lambda: len(scene.jobs) == 2, what="the job of the second attempt")
    failed, second = scene.jobs
    assert is_true(failed, "Failed")
    eventually(scene.file(trainjob=name_of(second)).exists)
    scene.pause()
    scene.end_early(scene.run.terminate)
    scene.step.wait()
    scene.finish("RUNNING", jobs=(2,))


def _goes_on_to_its_end(scene: Scene) -> None:
    """The next try waits for the job, which is then trained to its end."""
    eventually(lambda: "event=trainjob_adopted" in scene.step.log(), what="the job is adopted")
    assert not _is_stopped(scene.job)
    scene.file(what="go").touch()
    end = scene.step.wait()
    assert end.succeeded, end.log
    assert end.outputs["trainjob"] == scene.trainjob
    assert is_true(scene.job, "Complete")


def test_an_export_killed_at_any_moment(scene: Scene, steps: StepCluster, backend: Backend, tmp_path: Path) -> None:
    exports = tmp_path / "exports"
    told = {
        "run_id": steps.exported_run,
        "trainjob": "",
        "export_uri": str(StorageUri.from_path(exports)),
        "workspace_path": str(steps.workspace),
        "resumable": False,
    }
    scene.step = scene.run.start(shipped.export_checkpoint, told)
    eventually(lambda: any(exports.rglob("*.*")), what="the first file of the export")
    time.sleep(scene.random.uniform(0, EXPORT_SECONDS))
    scene.end_early(scene.run.terminate)
    scene.step.wait()
    scene.finish("RUNNING", jobs=(0,))
    run = backend.run()
    end = run.start(shipped.export_checkpoint, told).wait()
    assert end.succeeded, end.log
    verify_export(end.outputs["uri"], digest=end.outputs["digest"])
    assert len(read_catalog(open_store(exports_of_run(told["export_uri"], steps.exported_run))).exports) == 1
