"""`trainwright controller` in the place of Trainer's manager, and beside it."""

from __future__ import annotations

import urllib.error
import urllib.request

from support.ports import free_ports
from support.waiting import eventually

from acceptance.clusters import EmbeddedClusterUnderTest, hold_lease
from acceptance.scene import Scene
from acceptance.stage import TORCH, Stage
from acceptance.told import Running, Told

OWN = (*TORCH, "--submission-mode", "trainjob")


class Controller:
    """`trainwright controller` for one namespace, as the administrator would run it."""

    def __init__(self, stage: Stage):
        metrics, self._health = free_ports(2)
        self.process: Running = stage.begin(
            *("controller", "--namespace", stage.namespace, "--lease-namespace", stage.namespace),
            *("--metrics-port", str(metrics), "--health-port", str(self._health)),
            KUBECONFIG=str(stage.admin.admin),
        )

    def readiness(self) -> tuple[int, str]:
        """Status and text of `/readyz`; 0 while nothing listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health}/readyz", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def wait_ready(self) -> None:
        eventually(lambda: self.readiness()[0] == 200, 60, "the controller is ready")


def _elsewhere(stage: Stage, cluster: EmbeddedClusterUnderTest) -> Stage:
    """The same scene on another cluster, if it is another one."""
    return stage if cluster is stage.admin else Stage(stage.name, cluster, cluster.make_namespace(), stage.folder / "elsewhere")


def _submit(stage: Stage, run: str, program: str, *limits: str) -> Told:
    words = ("submit", "--run-id", run, "--wait", "--logs", *(limits or ("--timeout", "90")), *OWN)
    return stage.trainwright(*words, "--command", f'python3 -c "{program}"')


def _in_its_place(stage: Stage) -> Told:
    """A job that succeeds, one that fails, one that was created suspended, and one that the next controller finishes."""
    with stage.admin.place() as cluster:
        stage = _elsewhere(stage, cluster)
        try:
            return _plays_jobs(stage)
        finally:
            stage.close()


def _plays_jobs(stage: Stage) -> Told:
    first = Controller(stage)
    first.wait_ready()
    well = _submit(stage, "{name}-1", "print('said under our controller')")
    assert (well.code, "said under our controller" in well.out) == (0, True), well
    fails = _submit(stage, "{name}-0", "import sys; print('bad batch', flush=True); sys.exit(7)", "--timeout", "20")
    assert fails.code == 23, fails  # the stock runtime tries again and again
    _resumes_one_created_suspended(stage)
    waiting = stage.begin(
        *("submit", "--run-id", "{name}-2", "--wait", "--logs", *OWN),
        *("--command", "python3 -uc \"import time; print('began'); time.sleep(8)\""),
    )
    waiting.says("began")
    first.process.kill()
    second = Controller(stage)
    told = waiting.wait(90)
    second.wait_ready()
    assert told.code == 0, told
    name = next(
        job["metadata"]["name"] for job in stage.jobs() if job["metadata"]["labels"]["trainwright.dev/run"].endswith("-2")
    )
    (condition,) = [one for one in stage.get("trainjob", name)["status"]["conditions"] if one["type"] == "Complete"]
    assert condition["status"] == "True"
    return told


def _resumes_one_created_suspended(stage: Stage) -> None:
    name = f"{stage.name}-suspended"
    trainer = {"image": stage.admin.image("launcher"), "command": ["python3", "-c", "print('resumed')"]}
    spec = {"suspend": True, "runtimeRef": {"kind": "TrainingRuntime", "name": "torch-distributed"}, "trainer": trainer}
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name}, "spec": spec}
    stage.apply(stage.manifest(job))
    eventually(lambda: name in [one["metadata"]["name"] for one in stage.get("jobsets")["items"]], 30, "its JobSet")
    assert stage.get("jobset", name)["spec"]["suspend"] is True
    assert stage.kubectl("patch", "trainjob", name, "--type", "merge", "-p", '{"spec":{"suspend":false}}').code == 0
    told = stage.trainwright("wait", name, "--timeout", "60", "--submission-mode", "trainjob")
    assert told.code == 0, told


def _beside(stage: Stage) -> Told:
    """It is not ready and names who is active; when that one has gone, it finishes what is there."""
    with stage.admin.managed_elsewhere() as (cluster, holder):
        stage = _elsewhere(stage, cluster)
        try:
            controller = Controller(stage)
            eventually(lambda: holder in controller.readiness()[1], 60, f"/readyz names {holder}")
            assert controller.readiness()[0] != 200
            if not isinstance(cluster, EmbeddedClusterUnderTest):
                return _submit(stage, "{name}", "print('said beside it')")
            waiting = stage.begin("submit", "--run-id", "{name}", "--wait", *OWN, "--command", "python3 -c 'print(1)'")
            eventually(stage.jobs, 30)
            assert not stage.get("jobsets")["items"], "it reconciled while another one was active"
            hold_lease(cluster, "")
            controller.wait_ready()
            return waiting.wait(60)
        finally:
            stage.close()


def _again(stage: Stage) -> Told:
    """Trainer's manager comes back while ours is active: ours stops."""
    with stage.admin.managed_elsewhere() as (cluster, holder):
        stage = _elsewhere(stage, cluster)
        try:
            hold_lease(cluster, "")
            controller = Controller(stage)
            controller.wait_ready()
            hold_lease(cluster, holder)
            eventually(lambda: controller.readiness()[0] != 200, 40, "it is no longer ready")
            waiting = stage.begin("submit", "--run-id", "{name}", "--wait", "--timeout", "6", *OWN, "--command", "true")
            told = waiting.wait(60)
            assert not stage.get("jobsets")["items"], "it reconciled while another one was active"
            return told
        finally:
            stage.close()


def _succeeds(_stage: Stage, told: Told) -> None:
    assert told.code == 0, f"exit code {told.code}"


SCENES = [
    Scene("in the place of Trainer's manager", _in_its_place, _succeeds, needs=("Trainer's place",)),
    Scene("beside Trainer's manager", _beside, _succeeds, needs=("Trainer's manager",)),
    Scene(
        "Trainer's manager comes back",
        _again,
        lambda _stage, told: None,
        needs=("Trainer's Lease to hold",),
    ),
]
