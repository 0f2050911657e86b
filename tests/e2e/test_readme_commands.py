"""The commands of README.md, as they are written there and in their order, on an embedded cluster; the others say where they are run.

A new command is run, or gets a reason here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.cluster_under_test import embedded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
COMMANDS = re.findall(r"^\$ (.+?)(?: {2,}#.*)?$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
ELSEWHERE = {
    "git clone <this repository> && cd trainwright": "the checkout is here",
    "make finetune": "tests/e2e/test_finetune.py",
    "make finetune ORCHESTRATOR=airflow": "tests/e2e/test_finetune_airflow.py",
    "make finetune MODEL=hf://Qwen/Qwen2.5-0.5B DATASET=hf://tatsu-lab/alpaca": "needs the Hugging Face Hub",
    "make finetune MODEL=./my-model DATASET=./rows.jsonl NAME=mine EXPORT=file:///data/exports": "tests/quickstart, with other names",
    "make finetune EXPORT=s3://bucket/prefix": "tests/e2e/test_finetune.py, with a real S3 server",
    "make retrain-demo": "tests/e2e/test_retraining.py",
    "make test": "runs this test's neighbours",
    "deploy/images/build.sh --registry registry.example.com/ml --push && export "
    "TRAINWRIGHT_IMAGE='registry.example.com/ml/{image}:0.1.0'": "tests/deploy/test_images.py",
    "export KUBECONFIG=$(trainwright up)": "the cluster of this test is one",
    "kubectl apply -f my-trainjob.yaml && kubectl get trainjobs,pods": "the file is the reader's",
    "trainwright down": "stops the cluster of the user",
}
SAID = {
    'trainwright submit --code quickstart/examples --command "torchrun ddp.py" --num-nodes 2 --wait --logs': '"processes": 2',
    "trainwright submit --func quickstart/examples/fit.py:fit --func-args steps=3 --run-id tuesday --wait": "Succeeded",
    "trainwright submit -f quickstart/examples/trainjob.yaml --run-id wednesday": "created, run wednesday",
    "trainwright rbac --namespace kubeflow --for kfp | kubectl apply -f -": "created",
    "trainwright runtimes show trl-sft | kubectl apply -f -": "clustertrainingruntime.trainer.kubeflow.org/trl-sft",
    "trainwright pipeline compile finetune -O finetune.yaml": "",
}


def test_every_command_is_run_or_says_where_it_is() -> None:
    assert set(COMMANDS) == set(ELSEWHERE) | set(SAID)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, whose version is in docs/conformance.md")
def test_readme_commands_run_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "quickstart").symlink_to(ROOT / "quickstart")
    with embedded(tmp_path / "cluster", node=True) as kubeconfig:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}
        env.pop("TRAINWRIGHT_HOME")  # of the tests; it goes before KUBECONFIG
        namespace = ["kubectl", "create", "namespace", "kubeflow"]
        subprocess.run(namespace, env=env, check=True, capture_output=True)
        for command in (each for each in COMMANDS if each in SAID):
            words = ["bash", "-o", "pipefail", "-c", command]
            done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            assert SAID[command] in done.stdout, f"{command}\n{done.stdout}\n{done.stderr}"
