"""The options and the output of `up` and `status` that concern controllers and the isolation of pods."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.pod_isolation import pods_are_isolated
from typer.testing import CliRunner, Result

from trainwright.cli import app
from trainwright.cluster import connect
from trainwright.embedded.home import Home
from trainwright.embedded.lifecycle import start, stop
from trainwright.embedded.options import InvalidControllers, parse_controllers

pytestmark = pytest.mark.medium


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    yield home
    stop(home)


def trainwright(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def up(home: Home, *more: str) -> str:
    done = trainwright("up", "--home", str(home.path), *more)
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--controllers", "jobs"], "unknown controller 'jobs'; known: trainjob, jobset, job, local-queue"),
        (["--controllers", ""], "no controller is named"),
        (["--controllers", "job", "--no-controllers"], "exclude each other"),
        (["--foreground", "--controllers", "job,all"], "unknown controller 'all'"),
    ],
)
def test_controllers_that_cannot_be_are_refused(options: list[str], words: str) -> None:
    answer = CliRunner().invoke(app, ["up", *options])
    assert answer.exit_code == 1
    assert words in answer.output
    assert len(answer.output.splitlines()) == 1


@pytest.mark.parametrize("command", ["up", "down", "status"])
@pytest.mark.parametrize("kind", ["file", "locked folder"])
def test_a_home_that_cannot_be_used_is_named_without_a_traceback(command: str, kind: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    if kind == "file":
        home.touch()
    else:
        (home / "lock").mkdir(parents=True)
    answer = CliRunner().invoke(app, [command, "--home", str(home)])
    assert answer.exit_code == 1
    assert isinstance(answer.exception, SystemExit)
    assert str(home) in answer.output.splitlines()[0]


def test_queues_need_their_controller(home: Home, tmp_path: Path) -> None:
    queues = tmp_path / "queues.yaml"
    queues.write_text("queues: [{name: a, quota: {pods: 1}}]")
    with pytest.raises(InvalidControllers, match="local-queue"):
        start(home, queues=queues, controllers=parse_controllers("job,jobset,trainjob"))
    assert home.running() is None


def status(home: Home) -> dict[str, Any]:
    done = trainwright("status", "--home", str(home.path), "-o", "json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def shown(home: Home) -> dict[str, str]:
    """The table of `status`."""
    done = trainwright("status", "--home", str(home.path))
    return {name: value.strip() for name, _, value in (line.partition(" ") for line in done.stdout.splitlines())}


def test_controllers_are_chosen_at_each_start(home: Home) -> None:
    up(home, "--no-controllers")
    assert status(home)["controllers"] == []
    assert shown(home)["controllers"] == "none"
    assert up(home) == str(home.kubeconfig), "without the option what runs is fine"
    refused = trainwright("up", "--home", str(home.path), "--controllers", "job")
    assert refused.exit_code == 1
    assert "with other controllers (none); stop it first" in refused.stderr
    stop(home)
    up(home, "--controllers", "jobset, job")
    up(home, "--controllers", "job,jobset")
    assert shown(home)["controllers"] == "jobset, job"


def test_a_running_control_plane_is_not_taken_for_one_with_other_options(home: Home) -> None:
    limits = ("--max-token-seconds", "7200", "--host-folder", str(home.path.parent))
    up(home, "--feature-gates", "TrainJobStatus=false", *limits)
    running = home.running()
    assert running is not None
    assert (running.token_seconds, running.host_folders) == (7200, (str(home.path.parent),))
    refused = trainwright("up", "--home", str(home.path), "--max-token-seconds", "3600", "--host-folder", "/srv")
    assert "already runs" in refused.stderr
    assert f"with tokens of at most 7200 s and with other host folders ({home.path.parent}); stop it first" in refused.stderr
    refused = trainwright(
        "up", "--home", str(home.path), "--durability", "full", "--no-node", "--feature-gates", "TrainJobStatus=true"
    )
    assert refused.exit_code == 1
    assert "already runs" in refused.stderr
    assert "with a node, with durability normal, with other feature gates; stop it first" in refused.stderr
    assert up(home, "--feature-gates", "TrainJobStatus=false", "--durability", "normal") == str(home.kubeconfig)
    assert up(home) == str(home.kubeconfig)


@pytest.mark.alone
def test_status_says_within_three_seconds_that_a_control_plane_hangs(home: Home) -> None:
    up(home, "--no-node")
    running = home.running()
    assert running is not None
    os.kill(running.pid, signal.SIGSTOP)  # the kernel still accepts connections for it
    try:
        began = time.monotonic()
        done = trainwright("status", "--home", str(home.path))
        took = time.monotonic() - began
    finally:
        os.kill(running.pid, signal.SIGCONT)
    assert done.exit_code == 1
    assert "running     True" in done.stdout
    assert f"problem     it does not respond within 1.5 s; see {home.log}" in done.stdout
    assert took < 3
    assert trainwright("status", "--home", str(home.path)).exit_code == 0


def test_status_says_how_pods_are_isolated(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    up(home)
    if pods_are_isolated(connect(home.kubeconfig)):
        assert status(home)["isolation"] == {"status": "True", "reason": "KernelNamespaces"}
        assert shown(home)["isolation"] == "kernel namespaces"
    assert status(home)["controllers"] == ["trainjob", "jobset", "job", "local-queue"]
    assert "controllers" not in shown(home)
    stop(home)
    monkeypatch.setenv("TRAINWRIGHT_ISOLATION", "off")
    up(home)
    reason = "isolation is turned off by the environment variable TRAINWRIGHT_ISOLATION"
    assert status(home)["isolation"] == {"status": "False", "reason": "Processes", "message": reason}
    assert shown(home)["isolation"] == f"paths are rewritten: {reason}"
