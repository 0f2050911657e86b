"""The chains of both orchestrators on a cluster in docker, as `deploy/kind/up.sh` makes it."""

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
from trainwright.quickstart.airflow_dag import configure

CLUSTER = "trainwright-test"
IMAGE = f"localhost/trainwright/{{image}}:{__version__}"


def _why_not() -> str:
    absent = [program for program in ("docker", "kind", "kubectl", "helm") if shutil.which(program) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    engine = subprocess.run(["docker", "info"], capture_output=True, timeout=60, check=False)
    return "" if engine.returncode == 0 else "no docker engine is running"


pytestmark = [pytest.mark.kind, pytest.mark.timeout(3600)]


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
    command = [
        sys.executable,
        "-P",
        "-m",
        "trainwright.cli",
        "doctor",
        "--namespace",
        "training",
        "--runtime",
        "trl-sft",
        "-o",
        "json",
    ]
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "TRAINWRIGHT_HOME": ""}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert json.loads(done.stdout)["verdict"] in ("ok", "warning"), done.stdout


PARAMETERS = {
    "dataset_uri": "hf://tatsu-lab/alpaca",
    "model_uri": "hf://trl-internal-testing/tiny-Qwen2ForCausalLM-2.5",
    "export_uri": "file:///workspace/exports",
    "workspace": "pvc://workspace",
    "num_nodes": 1,
    "settings": {"steps": 5, "batch_size": 2, "max_length": 64, "cpu": True},
}
"""Sources of the hub, so this needs a way to it."""


def test_a_pipeline_ends_with_an_evaluated_export(kubeconfig: Path, tmp_path: Path) -> None:
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "TRAINWRIGHT_HOME": "", "TRAINWRIGHT_IMAGE": IMAGE}
    values = tmp_path / "values.json"
    values.write_text(json.dumps({**PARAMETERS, "run_id": "kfp-1"}), "utf-8")
    forward = ["kubectl", "port-forward", "-n", "kubeflow", "service/ml-pipeline", "18888:8888"]
    run = [sys.executable, "-P", "-m", "trainwright.cli", "pipeline", "run", "finetune", "--host", "http://127.0.0.1:18888"]
    with subprocess.Popen(forward, env=env, stdout=subprocess.PIPE, text=True) as forwarding:
        try:
            assert forwarding.stdout is not None
            assert "Forwarding" in forwarding.stdout.readline()
            done = subprocess.run(
                [*run, "--params", str(values), "--wait"], env=env, capture_output=True, text=True, timeout=1800, check=False
            )
        finally:
            forwarding.terminate()
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_dag_ends_with_an_evaluated_export(kubeconfig: Path, tmp_path: Path) -> None:
    """Airflow runs here, its steps in pods of the cluster."""
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), **configure(tmp_path / "airflow")}
    parameters = json.dumps({**PARAMETERS, "run_id": "airflow-1", "namespace": "training"})
    command = [sys.executable, "-P", "-m", "trainwright.quickstart.airflow_dag", "finetune", parameters]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
