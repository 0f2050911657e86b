"""A job that somebody stops, suspends or resumes, and one that takes too long."""

from __future__ import annotations

import signal

from support.waiting import eventually

from acceptance.checks import ends, job_is, no_pods, says
from acceptance.scene import Check, Scene
from acceptance.scenes.checkpoints import CODE, trains
from acceptance.stage import Stage, submit
from acceptance.told import Running, Told


def _begins(stage: Stage, *words: str, steps: int = 600, pause: float = 0.3) -> Running:
    """A wait whose training has done two steps."""
    waiting = stage.begin("submit", "--run-id", "{name}", "--wait", "--logs", *words, *trains(steps, pause))
    waiting.says("step 2")
    return waiting


def _cancels(stage: Stage) -> Told:
    waiting = _begins(stage)
    told = stage.trainwright("cancel", stage.job()["metadata"]["name"])
    waiting.kill()
    return told


def _cancels_and_resumes(stage: Stage) -> Told:
    waiting = _begins(stage, steps=20)
    cancelled = stage.trainwright("cancel", stage.job()["metadata"]["name"])
    assert cancelled.code == 0, cancelled
    waiting.kill()
    return submit(*trains(20, 0.3))(stage)


def _suspends_and_resumes(stage: Stage) -> Told:
    waiting = _begins(stage, steps=15)
    name = stage.job()["metadata"]["name"]
    for suspend in ("true", "false"):
        patch = ("patch", "trainjob", name, "--type", "merge", "-p", '{"spec":{"suspend":' + suspend + "}}")
        assert stage.kubectl(*patch).code == 0
        if suspend == "true":
            eventually(lambda: not stage.pods(), 60, "the suspended job's pods are gone")
    return waiting.wait()


def _interrupts(on_cancel: str, number: signal.Signals = signal.SIGINT) -> object:
    def act(stage: Stage) -> Told:
        waiting = _begins(stage, "--on-cancel", on_cancel)
        waiting.interrupt(number)
        return waiting.wait(30)

    return act


def _cleans(stage: Stage) -> Told:
    waiting = _begins(stage)
    waiting.kill()
    shown = stage.trainwright("clean", "--run", "{name}")
    assert stage.job()["spec"].get("suspend") is not True, shown
    return stage.trainwright("clean", "--run", "{name}", "--yes")


def _deletes(stage: Stage) -> Told:
    waiting = _begins(stage)
    deleted = stage.trainwright("delete", stage.job()["metadata"]["name"])
    assert deleted.code == 0, deleted
    return waiting.wait(60)


def no_job() -> Check:
    """The job is gone, with its pods."""

    def check(stage: Stage, _told: Told) -> None:
        eventually(lambda: not stage.jobs(), 60, "the job is gone")

    return check


def keeps_running() -> Check:
    """The job has a running pod."""

    def check(stage: Stage, _told: Told) -> None:
        assert stage.running_pods()

    return check


SUSPENDED = (job_is("Suspended"), no_pods())

SCENES = [
    Scene("cancel", _cancels, (ends(0), *SUSPENDED), files=CODE),
    Scene(
        "cancel, and resume by the same command",
        _cancels_and_resumes,
        (ends(0), says("begins after step ([2-9]|1[0-9])", "step 20"), job_is("Complete")),
        files=CODE,
        marks=("quick",),
    ),
    Scene(
        "suspend and resume with kubectl",
        _suspends_and_resumes,
        (ends(0), says("suspended", "begins after step ([2-9]|1[0-4])", "step 15"), job_is("Complete")),
        files=CODE,
        marks=("quick",),
    ),
    Scene("Ctrl-C, on-cancel suspend", _interrupts("suspend"), (ends(130), *SUSPENDED), files=CODE, marks=("quick",)),
    Scene("Ctrl-C, on-cancel delete", _interrupts("delete"), (ends(130), no_job()), files=CODE),
    Scene("SIGTERM, on-cancel keep", _interrupts("keep", signal.SIGTERM), (ends(130), keeps_running()), files=CODE),
    Scene("clean what a run has left", _cleans, (ends(0), *SUSPENDED), files=CODE),
    Scene("a job that is deleted meanwhile", _deletes, (ends(30), says("deleted"), no_job()), files=CODE),
    Scene(
        "run timeout",
        submit("--run-timeout", "4", *trains(600, 0.3)),
        (ends(22), says("deadline"), job_is("Failed"), no_pods()),
        files=CODE,
    ),
    Scene(
        "total timeout",
        submit("--timeout", "6", *trains(600, 0.3)),
        (ends(23), says("6 s", "keeps running"), keeps_running()),
        files=CODE,
    ),
]
