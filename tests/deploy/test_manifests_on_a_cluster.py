"""The manifests of `deploy`, and what `trainwright rbac` and `runtimes show` print, applied by kubectl, again, and deleted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client_environments import ROOT
from support.cluster_under_test import embedded, kubeconfig_of_account

DEPLOY = ROOT / "deploy"
ELSEWHERE = {"chart", "kind", "controller", "runtimes"}
"""Rendered by Helm, of kind, or put together by kustomize."""
FILES = [file for file in sorted(DEPLOY.rglob("*.yaml")) if not ELSEWHERE & set(file.relative_to(DEPLOY).parts)]
FOLDERS = [DEPLOY / "controller", DEPLOY / "runtimes"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]


class Kubectl:
    def __init__(self, kubeconfig: Path):
        self.kubeconfig = kubeconfig

    def __call__(self, *words: str, text: str | None = None, code: int = 0) -> str:
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *words]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with embedded(tmp_path_factory.mktemp("manifests"), node=False) as kubeconfig:
        run = Kubectl(kubeconfig)
        for namespace in ("kubeflow", "airflow", "team"):
            run("create", "namespace", namespace)
        yield run


@pytest.mark.parametrize("path", [*FILES, *FOLDERS], ids=lambda path: str(path.relative_to(DEPLOY)))
def test_applied_twice_and_deleted(kubectl: Kubectl, path: Path) -> None:
    how = "-k" if path.is_dir() else "-f"
    assert kubectl("apply", "--validate=strict", how, str(path))
    again = kubectl("apply", how, str(path)).splitlines()
    # Lists of a custom kind are compared as a whole, and the server fills in defaults: kubectl sends them again, on any cluster.
    custom = "clustertrainingruntime."
    assert [line for line in again if not line.startswith(custom) and not line.endswith("unchanged")] == []
    kubectl("delete", "--ignore-not-found", how, str(path))  # with its namespace, if that is part of it


def printed(*words: str) -> str:
    command = [sys.executable, "-P", "-m", "trainwright.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def test_printed_manifests_serve_each_account_separately(kubectl: Kubectl, tmp_path: Path) -> None:
    """As docs/install.md says: two namespaces, an upgrade, one of them deleted, and what doctor says of the other's account."""
    one = printed("rbac", "--namespace", "team", "--service-account", "runner")
    two = printed("rbac", "--namespace", "kubeflow", "--for", "kfp")
    for text in (one, two, one):
        kubectl("apply", "-f", "-", text=text)
    for name in ("trl-sft", "causal-lm-evaluation", "workspace-step"):
        kubectl("apply", "-f", "-", text=printed("runtimes", "show", name, "--image", "registry.example.com/{image}:2"))
    shown = kubectl("get", "clustertrainingruntime", "workspace-step", "-o", "yaml")
    assert "registry.example.com/launcher:2" in shown
    runner = "system:serviceaccount:team:runner"
    assert kubectl("auth", "can-i", "create", "trainjobs.trainer.kubeflow.org", "-n", "team", "--as", runner) == "yes\n"
    kubectl("auth", "can-i", "create", "trainjobs.trainer.kubeflow.org", "-n", "kubeflow", "--as", runner, code=1)

    kubectl("create", "serviceaccount", "runner", "-n", "team")
    own = kubeconfig_of_account(kubectl.kubeconfig, tmp_path, "team", "runner")
    doctor = [sys.executable, "-P", "-m", "trainwright.cli", "doctor", "--kubeconfig", str(own), "--namespace", "team"]
    done = subprocess.run(
        [*doctor, "--runtime", "trl-sft", "--output", "json"], capture_output=True, text=True, timeout=120, check=False
    )
    said = json.loads(done.stdout)
    assert said["verdict"] != "missing", said
    missing = [finding for finding in said["findings"] if finding["check"] == "access" and finding["level"] not in ("ok", "info")]
    assert [finding["subject"] for finding in missing] in ([], ["nodes"], ["list nodes"]), missing
    kubectl("delete", "-f", "-", text=two)
    assert kubectl("auth", "can-i", "create", "trainjobs.trainer.kubeflow.org", "-n", "team", "--as", runner) == "yes\n"
