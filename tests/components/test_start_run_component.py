"""The first step of a pipeline refuses exports that later steps would not see."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from support.on_first_use import OnFirstUse

import trainwright.submission
from trainwright.controlplane.node.expansion import expand_references
from trainwright.jobs.diagnosis.exit_codes import ExitCode
from trainwright.steps import start
from trainwright.steps.ends import clean
from trainwright.steps.start import StartedRun
from trainwright.steps.training.kfp_parameters import run_of

shipped = OnFirstUse("trainwright.components")
TEXT = "kill $$; echo 100%24 $(HOME) $$(HOME) é"
STARTED = StartedRun("r", "w", "pvc://w/team", "/workspace/team")


@pytest.fixture(autouse=True)
def _started(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SimpleNamespace(default_namespace="default")
    monkeypatch.setattr(trainwright.submission, "connect_for_jobs", lambda **_: cluster)
    monkeypatch.setattr(start, "start_run", lambda *_, **__: STARTED)
    monkeypatch.setattr(clean, "suspend_abandoned", lambda *_: [])
    monkeypatch.delenv("KFP_POD_NAME", raising=False)


def run(**given: Any) -> Any:
    return shipped.start_run.python_func(workspace="pvc://w/team", run_id="r", **given)


@pytest.mark.parametrize(
    ("pod", "export_uri", "message"),
    [
        (
            "start-1",
            "file:///trainwright-workspace/exports",
            "use an object store, or a folder of the workspace: file:///workspace/...",
        ),
        ("start-1", "file:///exports", "would be lost with it"),
        ("", "file:///no-such-volume/exports", "/no-such-volume does not exist where this step runs"),
    ],
)
def test_exports_out_of_sight_are_refused(
    pod: str, export_uri: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KFP_POD_NAME", pod)
    with pytest.raises(SystemExit) as ended:
        run(export_uri=export_uri)
    assert ended.value.code == ExitCode.bad_input
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pod", "export_uri"),
    [
        ("start-1", "file:///workspace/exports"),
        ("start-1", "s3://bucket/exports"),
        ("", "file:///tmp/new/exports"),
        ("", ""),
    ],
)
def test_exports_in_sight_are_accepted(pod: str, export_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_POD_NAME", pod)
    assert run(export_uri=export_uri)[1:] == ("r", "w", "/workspace/team")


def test_large_integer_of_the_training_reaches_it_as_it_is() -> None:
    seed = 2**60 + 1
    returned = run(training={"settings": {"seed": seed}})[0]
    sent = json.loads(json.dumps(returned), parse_int=float)  # a server keeps every number as a double
    assert run_of(sent).training.settings == {"seed": seed}


def test_doubled_dollars_of_the_training_reach_it_as_they_are() -> None:
    training = {"command": ["sh", "-c", TEXT], "env": {"TEXT": TEXT}}
    returned = run(training=training)[0]
    sent = json.loads(
        expand_references(json.dumps(returned), {"HOME": "/root"})
    )  # as Kubernetes does with the arguments of a pod
    found = run_of(sent).training
    assert [found.command, found.env] == [*training.values()]


@pytest.mark.parametrize("settings", [{}, {"lora_rank": 8}])
def test_settings_of_the_run_are_those_of_its_trials(settings: dict[str, Any]) -> None:
    started = run(training={"settings": settings})[0]
    trials, count = shipped.plan_trials.python_func(run=started, trials=[{"learning_rate": 0.1}])
    assert count == 1
    assert json.loads(trials[0])["settings"] == {**settings, "learning_rate": 0.1}


def test_settings_of_a_plan_beside_a_run_without_any_are_taken() -> None:
    trials, _ = shipped.plan_trials.python_func(run=run()[0], settings={"lora_rank": 4}, trials=[{"learning_rate": 0.1}])
    assert json.loads(trials[0])["settings"]["lora_rank"] == 4
