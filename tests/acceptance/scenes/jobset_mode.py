"""Submission without Trainer: JobSets that the client builds, by an account with the rights of that mode alone."""

from __future__ import annotations

import json

from acceptance.checks import ends, no_pods, says
from acceptance.scene import Check, Scene
from acceptance.scenes.checkpoints import CODE, trains
from acceptance.stage import Stage
from acceptance.told import Told

MODE = ("--submission-mode", "jobset")
OWN = ("--runtime", "torch-distributed", "--image", "{launcher}", "--workspace", "pvc://{claim}")


def _account(stage: Stage) -> None:
    """From here on, act as an account with the rights of `trainwright rbac --mode jobset`."""
    name = f"jobset-{stage.name[-4:]}"
    stage.kubeconfig = stage.admin.make_account(
        stage.namespace, name, stage.admin.printed_rights(stage.namespace, name, "jobset")
    )


def _submits(*words: str) -> object:
    def act(stage: Stage) -> Told:
        _account(stage)
        return stage.trainwright("submit", "--run-id", "{name}", *MODE, "--wait", "--logs", *OWN, *words)

    return act


def _cancels_and_resumes(stage: Stage) -> Told:
    _account(stage)
    words = ("submit", "--run-id", "{name}", *MODE, "--wait", "--logs", "--runtime", "torch-distributed", *trains(20, 0.3)[4:])
    waiting = stage.begin(*words)
    waiting.says("step 2")
    (jobset,) = _jobsets(stage)
    cancelled = stage.trainwright("cancel", jobset, *MODE)
    assert cancelled.code == 0, cancelled
    waiting.kill()
    return stage.trainwright(*words)


def _jobsets(stage: Stage) -> list[str]:
    selector = f"trainwright.dev/source-kind=TrainJob,trainwright.dev/run={stage.name}"
    found = json.loads(stage.kubectl("get", "jobsets", "-l", selector, "-o", "json").out)["items"]
    return [one["metadata"]["name"] for one in found]


def only_a_jobset() -> Check:
    """There is one JobSet, and no TrainJob."""

    def check(stage: Stage, _told: Told) -> None:
        assert len(_jobsets(stage)) == 1
        assert not stage.jobs()

    return check


SCENES = [
    Scene(
        "a program",
        _submits("--command", "python3 -c \"print('trained without Trainer')\""),
        (ends(0), says("trained without Trainer"), only_a_jobset(), no_pods()),
        marks=("quick",),
    ),
    Scene(
        "a program that fails again and again",
        _submits("--command", "python3 -c \"raise ValueError('bad batch in column 7')\"", "--timeout", "30"),
        (ends(23), says("bad batch in column 7", "exited 1"), only_a_jobset()),
    ),
    Scene(
        "jobset: cancel and resume",
        _cancels_and_resumes,
        (ends(0), says("begins after step ([2-9]|1[0-9])", "step 20")),
        files=CODE,
    ),
]
