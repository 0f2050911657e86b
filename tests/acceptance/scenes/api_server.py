"""The API server is gone, restarted, or no longer knows the person."""

from __future__ import annotations

import yaml
from servers.api_outage import OUTAGE_SECONDS, Outage

from acceptance.checks import ends, job_is, says, within
from acceptance.scene import Scene
from acceptance.scenes.checkpoints import CODE, OWN, trains
from acceptance.stage import Stage
from acceptance.told import Told


def _gone(stage: Stage) -> Told:
    waiting = stage.begin("submit", "--run-id", "{name}", "--wait", "--logs", *trains(120, 0.3))
    waiting.says("step 3")
    with stage.admin.api_server_gone(20):
        pass
    return waiting.wait()


def _killed_with_its_client(stage: Stage) -> Told:
    words = ("submit", "--run-id", "{name}", "--wait", "--logs", *trains(60, 0.3))
    waiting = stage.begin(*words)
    waiting.says("step 3")
    waiting.kill()
    with stage.admin.api_server_gone(5):
        pass
    return stage.trainwright(*words)


def _is_one_pod(stage: Stage, _told: Told) -> None:
    assert len(stage.pods()) == 1, "the training was started again"


def _faulty(stage: Stage) -> Told:
    """All answers are faults for a while, and then 403 for some seconds, as of a restarted API server."""
    with Outage(stage.folder, stage.kubeconfig, 7, None, is_restart=True) as api:
        words = ("submit", "-n", "{namespace}", "--run-id", "{name}", "--wait", "--logs", *trains(100, 0.3))
        waiting = stage.begin(*words, KUBECONFIG=str(api.kubeconfig))
        waiting.says("step 3")
        api.begin()
        return waiting.wait()


def _wrong_token(stage: Stage) -> Told:
    config = yaml.safe_load(stage.kubeconfig.read_text("utf-8"))
    config["users"][0]["user"]["token"] += "x"
    wrong = stage.write("wrong.kubeconfig", yaml.safe_dump(config))
    return stage.trainwright("submit", "--run-id", "{name}", "--wait", *OWN, "--command", "true", KUBECONFIG=str(wrong))


def _waits_until_it_is_dead(stage: Stage) -> Told:
    name = f"ends-{stage.name[-4:]}"
    kubeconfig = stage.admin.make_account(stage.namespace, name, stage.admin.printed_rights(stage.namespace, name))
    words = ("submit", "--run-id", "{name}", "--wait", "--logs", *trains(2000, 0.3))
    waiting = stage.begin(*words, KUBECONFIG=str(kubeconfig))
    waiting.says("step 3")
    stage.admin.kubectl("delete", "serviceaccount", name, "-n", stage.namespace)
    told = waiting.wait(500)
    assert stage.running_pods(), "the job must go on"
    return told


SCENES = [
    Scene(
        "gone for 20 seconds",
        _gone,
        (ends(0), says("step 120"), job_is("Complete")),
        needs=("a restart",),
        alone=True,
        files=CODE,
    ),
    Scene(
        "killed with its client",
        _killed_with_its_client,
        (ends(0), says("step 60"), job_is("Complete"), _is_one_pod),
        needs=("a restart",),
        alone=True,
        files=CODE,
        marks=("quick",),
    ),
    Scene(
        f"faults of every kind for {OUTAGE_SECONDS:.0f} seconds, then 403",
        _faulty,
        (ends(0), job_is("Complete"), says("step 100")),
        files=CODE,
    ),
    Scene("a token that is not valid", _wrong_token, (ends(4), says("unauthorized|credentials"), within(30))),
    Scene(
        "a token that ends while it waits",
        _waits_until_it_is_dead,
        (ends(4), says("credentials|unauthorized"), within(400)),
        files=CODE,
        needs=("tokens that end",),
        marks=("long",),
    ),
]
