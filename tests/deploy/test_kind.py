"""The acceptance suite on a cluster in docker, as `deploy/kind/up.sh` makes it, with Kubeflow Pipelines and DAGs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client_environments import ROOT

from trainwright import __version__

CLUSTER = "trainwright-test"
IMAGE = f"localhost/trainwright/{{image}}:{__version__}"
PORT = 18888


def _why_not() -> str:
    absent = [program for program in ("docker", "kind", "kubectl", "helm") if shutil.which(program) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    engine = subprocess.run(["docker", "info"], capture_output=True, timeout=60, check=False)
    return "" if engine.returncode == 0 else "no docker engine is running"


pytestmark = [pytest.mark.kind, pytest.mark.timeout(3 * 3600)]


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if why := _why_not():
        pytest.skip(why)
    path = tmp_path_factory.mktemp("kind") / "kubeconfig"
    env = {**os.environ, "KUBECONFIG": str(path), "TRAINWRIGHT_HOME": ""}
    try:
        subprocess.run([ROOT / "deploy/kind/up.sh", "--pipelines", "--name", CLUSTER], env=env, check=True, timeout=2400)
        yield path
    finally:
        subprocess.run(["kind", "delete", "cluster", "--name", CLUSTER], env=env, check=False, timeout=300)


def test_the_accounts_of_the_chart_may_run_jobs(kubeconfig: Path) -> None:
    doctor = [sys.executable, "-P", "-m", "trainwright.cli", "doctor", "--namespace", "training", "--runtime", "trl-sft"]
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "TRAINWRIGHT_HOME": ""}
    done = subprocess.run([*doctor, "-o", "json"], env=env, capture_output=True, text=True, timeout=300, check=False)
    assert json.loads(done.stdout)["verdict"] in ("ok", "warning"), done.stdout


def test_every_scene(kubeconfig: Path) -> None:
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "TRAINWRIGHT_HOME": ""}
    node = f"{CLUSTER}-control-plane"
    options = {
        "KUBECONFIG": str(kubeconfig),
        "IMAGE": IMAGE,
        "KFP_HOST": f"http://127.0.0.1:{PORT}",
        "AIRFLOW": "yes",
        "RESTART": f"docker pause {node}; sleep $1; docker unpause {node}",
        "LOSE_NODE": "docker pause $1",
        "FIND_NODE": "docker unpause $1",
    }
    forward = ["kubectl", "port-forward", "-n", "kubeflow", "service/ml-pipeline", f"{PORT}:8888"]
    with subprocess.Popen(forward, env=env, stdout=subprocess.PIPE, text=True) as forwarding:
        try:
            assert forwarding.stdout is not None
            assert "Forwarding" in forwarding.stdout.readline()
            command = ["make", "acceptance", *(f"{name}={value}" for name, value in options.items())]
            assert subprocess.run(command, cwd=ROOT, env=env, timeout=2.5 * 3600, check=False).returncode == 0
        finally:
            forwarding.terminate()
