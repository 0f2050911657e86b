"""Tasks and iterations of one run that train the same function: each has a job, finds it again, and never takes that of another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from backend import Backend, RunningStep
from step_cluster import StepCluster
from support.on_first_use import OnFirstUse
from support.waiting import eventually

from trainwright.api.objects import labels_of, name_of

shipped = OnFirstUse("trainwright.components")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
LOOP = "for-loop-1.iteration-iterations({0}:{0}).iteration-item.train"
PLACES = [LOOP.format(0), LOOP.format(1), "train", "train-2"]
TRAINING = """
def training(folder):
    import pathlib, time, uuid
    name = str(uuid.uuid4())
    (pathlib.Path(folder) / f"{name}.training").touch()
    while not (pathlib.Path(folder) / "go").exists():
        time.sleep(0.05)
    return {"drawn": name}
"""


@pytest.fixture
def started(steps: StepCluster, tmp_path: Path) -> Iterator[list[RunningStep]]:
    """The steps of a run, all with the same parameters."""
    with closing(Backend(steps.cluster, steps.kubeconfig, tmp_path)) as backend:
        run = backend.run()
        told = {"run_id": run.id, "runtime": "jax-distributed", "func": TRAINING, "func_args": {"folder": str(tmp_path)}}
        yield [run.start(shipped.train, told, place=place) for place in PLACES]


def test_every_task_and_iteration_has_a_job_and_a_lost_pod_finds_its_own(
    started: list[RunningStep], steps: StepCluster, tmp_path: Path
) -> None:
    run = started[0].run_id
    eventually(lambda: len(list(tmp_path.glob("*.training"))) == len(PLACES), 60, "all train")
    jobs = {name_of(job): job for job in steps.jobs(run)}
    assert len(jobs) == len(PLACES)
    lost = started[1]
    lost.delete_pod()
    eventually(lambda: len(lost.pods) == 2 and lost.pod.is_running, 30, "its retry")
    eventually(lambda: "trainjob_adopted" in lost.log(), 30, "the retry adopts")
    (tmp_path / "go").touch()
    ends = [step.wait(90) for step in started]
    assert all(end.succeeded for end in ends), [end.log for end in ends]
    own = [end.outputs["trainjob"] for end in ends]
    drawn = {end.outputs["results"]["drawn"] for end in ends}
    assert len(drawn) == len(PLACES), "each has another result"
    assert sorted(own) == sorted(jobs), "nobody has submitted another one"
    tasks = {labels_of(job)["trainwright.dev/pipeline_task"] for job in jobs.values()}
    assert {"train", "train-2"} < tasks
    assert {labels_of(job)["trainwright.dev/pipeline_run"] for job in jobs.values()} == {run}
