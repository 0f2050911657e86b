"""A step whose API server answers every request with 429, 500 or a reset for a while: it ends right, and makes one job.

The outages begin at different moments of a step, from its first request to its last. All steps run at once. A request whose answer is
lost is carried out, or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from backend import Backend, RunningStep
from servers.api_outage import FAULTS, OUTAGE_SECONDS, Outage
from step_cluster import StepCluster
from support.on_first_use import OnFirstUse
from support.waiting import eventually

from trainwright.api.conditions import is_true
from trainwright.api.objects import name_of

shipped = OnFirstUse("trainwright.components")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

STEP_SECONDS = 90.0
LONGEST_PAUSE_SECONDS = 7.5
"""Between two requests of a client that is refused again and again."""
RUNTIME = "jax-distributed"
"""Starts a function with Python alone."""
TRAINING = """
def training(folder, name):
    import pathlib, time
    (pathlib.Path(folder) / f"{name}.training").touch()
    while not (pathlib.Path(folder) / f"{name}.go").exists():
        time.sleep(0.05)
    print("the last line of", name)
    return {"trained": name}
"""
MOMENTS = {
    ("train", "at its first request"): "",
    ("train", "when it creates its job"): "create",
    ("train", "while its job trains"): None,
    ("train", "when it reads the results"): "log",
    ("wait_train_job", "at its first request"): "",
    ("wait_train_job", "when it takes over the lease"): "other",
}
"""When the outage of a component begins: with a request of a kind, empty for any; None if the test begins it."""


@dataclass
class Scene:
    """A step and its outage. `job` is the id of the run of its job, and names the files that let it continue."""

    api: Outage
    step: RunningStep
    job: str
    folder: Path

    def file(self, what: str) -> Path:
        return self.folder / f"{self.job}.{what}"


class Scenes:
    """All steps, started together."""

    def __init__(self, backend: Backend, folder: Path):
        self._backend, self.folder = backend, folder

    def start(self, component: str, api: Outage) -> Scene:
        run = self._backend.run(kubeconfig=api.kubeconfig)
        logs = {"logging": {"logs": "none"}} if api.kind == "log" else {}  # its reading would begin earlier
        if component == "train":
            return Scene(api, run.start(shipped.train, self._training(run.id) | logs), run.id, self.folder)
        submitting = self._backend.run()
        submitted = submitting.start(shipped.submit_train_job, self._training(submitting.id)).wait()
        assert submitted.succeeded, submitted.log
        told = {"trainjob": submitted.outputs["Output"], **logs}
        return Scene(api, run.start(shipped.wait_train_job, told), submitting.id, self.folder)

    def _training(self, run: str) -> dict[str, Any]:
        told = {"folder": str(self.folder), "name": run}
        return {"run_id": run, "runtime": RUNTIME, "func": TRAINING, "func_args": told}


@pytest.fixture(scope="module")
def scenes(steps: StepCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Scene]]:
    """A scene for each moment, all of them under way."""
    folder = tmp_path_factory.mktemp("outages")
    backend = Backend(steps.cluster, steps.kubeconfig, folder)
    starting = Scenes(backend, folder)
    with ExitStack() as stack, closing(backend):
        scenes = {}
        for seed, (moment, kind) in enumerate(MOMENTS.items()):
            api = stack.enter_context(Outage(folder, steps.kubeconfig, seed, kind, is_restart=True))
            scenes[moment] = starting.start(moment[0], api)
        for scene in scenes.values():
            if scene.api.kind is None:
                eventually(scene.file("training").exists, what="the job trains")
                scene.api.begin()
            elif scene.api.kind == "other":  # only of a job that runs
                eventually(lambda api=scene.api: api.began, what="the lease is taken over")
            scene.file("go").touch()
        yield scenes


@pytest.mark.parametrize("moment", MOMENTS, ids=" ".join)
def test_a_step_ends_right_although_every_request_fails_for_a_while(
    scenes: dict[tuple[str, str], Scene], steps: StepCluster, moment: tuple[str, str]
) -> None:
    scene = scenes[moment]
    end = scene.step.wait(STEP_SECONDS)
    assert (end.exit_code, end.succeeded, len(scene.step.pods)) == (0, True, 1), end.log
    (job,) = steps.jobs(scene.job)
    assert is_true(job, "Complete")
    expected = {"trainjob": name_of(job), "namespace": "default", "folder": "", "results": {"trained": scene.job}}
    assert {name: end.outputs[name] for name in expected} == expected, end.log
    if scene.api.kind != "log":
        assert end.log.count(f"the last line of {scene.job}") == 1, end.log
    assert scene.api.is_over, "the step ended during the outage"
    seconds, faults = zip(*scene.api.faults, strict=True)
    assert {*FAULTS} <= {*faults} <= {*FAULTS, "403"}
    assert seconds[-1] > OUTAGE_SECONDS - LONGEST_PAUSE_SECONDS - 1, "the step kept asking"
