"""Submitting and waiting from a script: exit codes, dry runs, logs, differences."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.running_plane import create_runtime_once
from support.sigterm_scripts import WAIT
from support.waiting import eventually

from trainwright.api.errors import Forbidden, ServiceUnavailable
from trainwright.api.kinds import TRAINJOB
from trainwright.cluster import NoCluster
from trainwright.cluster.refusals import AccessDenied, Permission
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs.diagnosis.errors import (
    CannotRun,
    DeadlineExceeded,
    ImagePullFailure,
    ImagePullTimeout,
    OutOfMemory,
    Preempted,
    QueueTimeout,
    StartTimeout,
    StepFailed,
    TrainJobDeleted,
    TrainJobFailed,
)
from trainwright.jobs.diagnosis.exit_codes import ExitCode, exit_code_of
from trainwright.jobs.submit.create_object import comparable

Run = Callable[..., Any]
medium = pytest.mark.medium


@pytest.fixture
def once(plane: ControlPlane, trainjob: Any) -> Callable[..., dict[str, Any]]:
    """A job whose program is run once."""
    return partial(trainjob, runtimeRef={"name": create_runtime_once(plane.cluster)})


def described_codes() -> dict[int, str]:
    page = (Path(__file__).parents[2] / "docs" / "exit-codes.md").read_text()
    return {int(code): words for code, words in re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE)}


def test_every_code_is_described() -> None:
    assert set(described_codes()) == {int(code) for code in ExitCode}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StepFailed("", {}), 10),
        (TrainJobFailed("", {}), 10),
        (OutOfMemory("", {}), 11),
        (CannotRun("", {}), 15),
        (Preempted("", {}), 12),
        (ImagePullFailure("", {}), 13),
        (ImagePullTimeout("", "start"), 13),
        (QueueTimeout("", "queue"), 20),
        (StartTimeout("", "start"), 21),
        (DeadlineExceeded("", {}), 22),
        (TrainJobDeleted(""), 30),
        (Forbidden(""), 4),
        (Forbidden('trainjobs "a" is forbidden: exceeded quota: q, requested: count/trainjobs=1'), 2),
        (Forbidden('trainjobs "a" is forbidden: unable to create new content in namespace a because it is being terminated'), 2),
        (AccessDenied("exceeded", Permission("create", "trainjobs")), 4),
        (ServiceUnavailable(""), 3),
        (NoCluster(""), 3),
        (RuntimeError(""), 1),
    ],
)
def test_codes(error: Exception, code: int) -> None:
    assert exit_code_of(error) == code


@medium
@pytest.mark.parametrize(
    ("script", "spec", "options", "code", "words"),
    [
        ("echo out; sleep 1; echo put", {}, (), 0, ""),
        ("echo out; exit 7", {}, (), 10, "exited 7"),
        ("true", {"suspend": True}, ("--queue-timeout", "0.1"), 20, "was Suspended for more than 0.1 s; last seen: "),
        (WAIT, {}, ("--run-timeout", "0.1"), 22, "was Running for more than 0.1 s; last seen: "),
        (WAIT, {}, ("--timeout", "0.1", "--stopping", "delete"), 23, "it is deleted"),
    ],
)
def test_submitting_and_waiting_in_one(
    plane: ControlPlane, run: Run, write: Any, once: Any, script: str, spec: Any, options: Any, code: int, words: str
) -> None:
    job = once("waited", script=script, **spec)
    result = run("submit", "-f", write(job), "--wait", "--logs", *options)
    assert result.exit_code == code, result.stderr
    assert words in result.stderr
    printed = [line for line in result.stdout.splitlines() if line.startswith("[node-0-0] ")]
    said = [f"[node-0-0] {line}" for line in re.findall(r"echo (\w+)", script)]
    assert printed == said[: len(printed)]
    if not options:  # nothing stopped it before its end
        assert printed == said
    if "--stopping" not in options:
        run("delete", "waited")
    eventually(lambda: run("get", "waited").exit_code == 1)


@medium
def test_a_start_that_takes_too_long_says_what_the_pod_waits_for(
    plane: ControlPlane, run: Run, write: Any, trainjob: Any
) -> None:
    job = trainjob("large", trainer={"command": ["true"], "resourcesPerNode": {"requests": {"cpu": "9999"}}})
    result = run("submit", "-f", write(job), "--wait", "--start-timeout", "2")
    assert result.exit_code == 21
    assert re.search(r"was Starting for more than 2 s; last seen: .*cpu", result.stderr)
    run("delete", "large")


@medium
def test_the_end_as_a_document(plane: ControlPlane, run: Run, write: Any, once: Any) -> None:
    run("submit", "-f", write(once("told", script="echo why; exit 7")))
    result = run("wait", "told", "-o", "json", "--timeout", "60")
    told = json.loads(result.stdout)
    assert (told["error"], told["exitCode"], told["retryable"]) == ("StepFailed", result.exit_code, False)
    assert told["report"]["pods"][0]["log"] == ["why"]
    run("delete", "told")


@medium
def test_ctrl_c_ends_the_wait_and_not_the_job_and_a_deleted_job_is_told(
    plane: ControlPlane, run: Run, write: Any, trainjob: Any
) -> None:
    run("submit", "-f", write(trainjob("going", script=WAIT)))
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    result = run("wait", "going")
    assert result.exit_code == 130
    assert "was cancelled; it keeps running" in result.stderr
    threading.Timer(1.0, plane.cluster.delete, (TRAINJOB, "going", "default")).start()
    assert run("wait", "going").exit_code == 30


@medium
def test_dry_runs_make_nothing(plane: ControlPlane, run: Run, write: Any, trainjob: Any, tmp_path: Path) -> None:
    manifest = write(trainjob("dry"))
    done = run("submit", "-f", manifest, "--dry-run", "client", "--kubeconfig", str(tmp_path / "none"))
    assert (done.exit_code, done.stdout) == (0, "TrainJob default/dry created (client dry run)\n")
    done = run("submit", "-f", manifest, "--dry-run", "server", "-o", "json", "--wait")
    assert json.loads(done.stdout)["spec"]["managedBy"] == "trainer.kubeflow.org/trainjob-controller"
    assert run("get", "dry").exit_code == 1
    refused = run("submit", "-f", write(trainjob("dry", runtimeRef={"name": "none"})), "--dry-run", "server")
    assert refused.exit_code == 2
    assert run("submit", "-f", manifest, "--logs-of", "first").exit_code == 2


@medium
def test_differences(plane: ControlPlane, run: Run, write: Any, trainjob: Any, tmp_path: Path) -> None:
    job = trainjob("differs", suspend=True)
    job["metadata"]["labels"] = {"team": "x"}
    new = run("diff", "-f", write(job))
    assert new.exit_code == 1
    assert "+  name: differs\n" in new.stdout
    run("submit", "-f", write(job))
    plane.cluster.patch(TRAINJOB, "differs", {"metadata": {"annotations": {"others": "mark"}}}, "default")
    same = run("diff", "-f", write(job))
    assert (same.exit_code, same.stdout) == (0, "")
    job["spec"]["trainer"]["numNodes"] = 3
    job["spec"]["runtimeRef"]["name"] = "jax-distributed"
    changed = run("diff", "-f", write(job))
    assert changed.exit_code == 1
    lines = [line for line in changed.stdout.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert lines == ["-    name: torch-distributed", "+    name: jax-distributed", "+    numNodes: 3"]
    assert run("diff", "-f", write(trainjob("x", trainer={"numNodes": "y"}))).exit_code == 2
    assert run("diff", "-f", write(job), "--kubeconfig", str(tmp_path / "none")).exit_code == 3
    assert "diff-" not in run("get").stdout, "the dry runs have left nothing"
    run("delete", "differs")


def test_fields_set_by_others_are_ignored_in_comparisons() -> None:
    manifest = {"metadata": {"name": "a", "labels": {"team": "x"}}, "spec": {"runtimePatches": [{"manager": "me"}]}}
    live = {
        "kind": "TrainJob",
        "metadata": {"name": "a", "labels": {"team": "y", "kueue": "q"}, "uid": "u", "annotations": {"n": "o"}},
        "spec": {"suspend": False, "runtimePatches": [{"manager": "me", "time": "now"}, {"manager": "kueue"}]},
        "status": {"conditions": []},
    }
    assert comparable(live, manifest) == {
        "kind": "TrainJob",
        "metadata": {"name": "a", "labels": {"team": "y"}},
        "spec": {"runtimePatches": [{"manager": "me"}]},
    }
    manifest["spec"]["suspend"] = True
    assert comparable(live, manifest)["spec"]["suspend"] is False
