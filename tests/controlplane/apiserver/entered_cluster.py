"""A cluster whose pods run, and what a user does to them: kubectl, and the official client."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from factories import pod
from support.waiting import eventually

from trainwright.api.kinds import POD
from trainwright.embedded.home import Home
from trainwright.embedded.plane import ControlPlane


@dataclass
class Entered:
    """A cluster with a node in this process, and the ways of a user to it."""

    plane: ControlPlane
    home: Home

    def __post_init__(self) -> None:
        self.environment = {**os.environ, "KUBECONFIG": str(self.home.kubeconfig), "HOME": str(self.home.path)}
        self.user = yaml.safe_load(self.home.kubeconfig.read_text())["users"][0]["user"]
        self.url = yaml.safe_load(self.home.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]

    def run(self, name: str, script: str, until: str = "Running", **spec: Any) -> dict[str, Any]:
        """A pod with one container that runs a shell script, once it does."""
        self.plane.cluster.create(pod(name, script=script, **spec))
        return eventually(lambda: self.in_phase(name, until), what=f"pod {name} is {until}")

    def in_phase(self, name: str, phase: str) -> dict[str, Any] | None:
        pod = self.plane.cluster.get(POD, name, "default")
        return pod if (pod.get("status") or {}).get("phase") == phase else None

    def kubectl(
        self, *arguments: str, given: bytes | None = None, fails: int | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        command = [str(shutil.which("kubectl")), *arguments]
        done = subprocess.run(command, input=given, capture_output=True, timeout=60, env=self.environment)
        assert done.returncode == (fails or 0), done.stderr.decode()
        return done

    @contextmanager
    def started(self, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
        """kubectl while it runs; it is ended with the block."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen([str(shutil.which("kubectl")), *arguments], env=self.environment, **pipes)
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=10)

    def core(self) -> Any:
        kubernetes = pytest.importorskip("kubernetes", reason="the kubernetes client is not installed")
        return kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(str(self.home.kubeconfig)))
