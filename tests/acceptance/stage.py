"""Where a scene is played: a namespace with its account, a folder of the person's machine, and the claim."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acceptance.clusters import CLAIM, TRAINWRIGHT, ClusterUnderTest, Namespace
from acceptance.told import Running, Told, environment
from trainwright.runtimes.image import DEFAULT_IMAGE

CLUSTER_WIDE = {"PriorityClass", "ClusterRole", "ClusterRoleBinding"}
_WRITES = """
import pathlib, sys
at = pathlib.Path("/claim", sys.argv[1])
at.parent.mkdir(parents=True, exist_ok=True)
at.write_text(sys.argv[2])
"""
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
TORCH = ("--runtime-kind", "TrainingRuntime", "--runtime", "torch-distributed", "--image", "{launcher}")
"""The runtime of Trainer, as the namespace has it, with an image that has Python."""


class Stage:
    """What a scene acts with. Commands run as the account of the namespace, `admin` is the cluster's administrator."""

    def __init__(self, name: str, cluster: ClusterUnderTest, namespace: Namespace, folder: Path):
        self.name, self.admin, self.namespace, self.folder = name, cluster, namespace.name, folder
        self.kubeconfig = namespace.kubeconfig
        self._numbers = itertools.count()
        self._running: list[Running] = []

    def text(self, text: str) -> str:
        """A text of the scene, with names of this place in it."""
        for word, value in self._words.items():
            text = text.replace("{" + word + "}", value)
        return text

    def manifest(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """An object of the scene in this namespace, with names of this place in it."""
        made: dict[str, Any] = json.loads(self.text(json.dumps(obj)))
        if made["kind"] not in CLUSTER_WIDE:
            made["metadata"]["namespace"] = self.namespace
        return made

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects as the administrator."""
        self.admin.apply(*objects)

    def write(self, name: str, text: str) -> Path:
        """Write a file into the scene's folder on this machine."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    def trainwright(self, *words: str, seconds: float = 300, **env: str) -> Told:
        """Run the command line to its end."""
        return self.begin(*words, **env).wait(seconds)

    def begin(self, *words: str, **env: str) -> Running:
        """Start the command line."""
        texts = [self.text(word) for word in words]
        return self.start([*TRAINWRIGHT, *texts], ["trainwright", *texts], **env)

    def python(self, program: str, *words: str, seconds: float = 600, **env: str) -> Told:
        """Run a Python program of the person on this machine: a DAG."""
        path = self.write(f"program-{next(self._numbers)}.py", self.text(program))
        return self.start([sys.executable, "-P", str(path), *words], ["python", path.name, *words], **env).wait(seconds)

    def kubectl(self, *words: str, seconds: float = 120) -> Told:
        """Run kubectl as the account."""
        return self.start(["kubectl", *map(self.text, words)], ["kubectl", *map(self.text, words)]).wait(seconds)

    def start(self, command: list[str], label: list[str], **env: str) -> Running:
        """Start a command of the person; it is ended with the scene."""
        own = {"KUBECONFIG": str(self.kubeconfig), "TRAINWRIGHT_IMAGE": self.admin.options.image or DEFAULT_IMAGE}
        running = Running(command, environment(**{**own, **env}), self.folder / f"command-{next(self._numbers)}", label)
        self._running.append(running)
        return running

    def get(self, *words: str) -> Any:
        """What `kubectl get ... -o json` prints for the administrator."""
        return self.admin.get("-n", self.namespace, *words)

    def jobs(self) -> list[dict[str, Any]]:
        """The TrainJobs of the scene."""
        jobs = self.get("trainjobs")["items"]
        return [job for job in jobs if self._is_own(job["metadata"]["name"], job["metadata"].get("labels") or {})]

    def job(self) -> dict[str, Any]:
        """The only TrainJob of the scene."""
        (job,) = self.jobs()
        return job

    def pods(self) -> list[dict[str, Any]]:
        """The pods of the scene's jobs."""
        jobs = {job["metadata"]["name"] for job in self.jobs()}
        pods = self.get("pods", "-l", JOBSET_NAME)["items"]
        return [pod for pod in pods if pod["metadata"]["labels"][JOBSET_NAME] in jobs]

    def running_pods(self) -> list[str]:
        """The names of the scene's pods that run."""
        return [pod["metadata"]["name"] for pod in self.pods() if pod.get("status", {}).get("phase") == "Running"]

    def in_claim(self, program: str, *words: str, seconds: float = 120) -> str:
        """What a Python program prints in a pod of the trainer image that mounts the claim at /claim."""
        keeper = self.admin.keeper(self.namespace)
        command = ("exec", keeper, "-n", self.namespace, "--", "python3", "-c", program, *words)
        return self.admin.kubectl(*command, seconds=seconds).stdout

    def read(self, path: str) -> str:
        """The text of a file of the claim; `*` stands for any name, and the last of several files counts."""
        program = "import glob, sys; print(open(sorted(glob.glob('/claim/' + sys.argv[1]))[-1]).read())"
        try:
            return self.in_claim(program, path)
        except AssertionError:
            there = self.in_claim(
                "import os\nfor at, _, files in os.walk('/claim'):\n    for name in files: print(at + '/' + name)"
            )
            raise AssertionError(f"no file {path} in the claim; there are:\n{there[:3000]}") from None

    def lay(self, path: str, text: str) -> None:
        """Write a file into the claim."""
        self.in_claim(_WRITES, path, text)

    def in_pod(self, *words: str, seconds: float = 300, **env: str) -> Told:
        """Run the command line in a pod of the trainer image that mounts the claim at /claim."""
        keeper = self.admin.keeper(self.namespace)
        variables = [f"{name}={value}" for name, value in env.items()]
        texts = [self.text(word) for word in words]
        command = [
            "kubectl",
            "--kubeconfig",
            str(self.admin.admin),
            "exec",
            keeper,
            "-n",
            self.namespace,
            "--",
            "env",
            *variables,
        ]
        return self.start([*command, "python3", "-m", "trainwright.cli", *texts], ["trainwright", *texts]).wait(seconds)

    def serve(self, name: str, port: int, command: list[str], **env: str) -> str:
        """Run a server in a pod of the trainer image that mounts the claim at /claim; returns its host name for other pods.

        The pod is ready when something listens at the port.
        """
        program = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 1)"
        probe = {"exec": {"command": ["python3", "-c", program, str(port)]}, "periodSeconds": 1, "failureThreshold": 60}
        container = {
            "name": "server",
            "image": self.admin.image("trainer"),
            "command": command,
            "env": [{"name": key, "value": value} for key, value in env.items()],
            "readinessProbe": probe,
            "volumeMounts": [{"name": "claim", "mountPath": "/claim"}],
        }
        metadata = self.admin.metadata(name, self.namespace)
        pod = {
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": CLAIM}}],
            "containers": [container],
        }
        service = {"selector": {"app": name}, "clusterIP": "None", "ports": [{"port": port}]}
        self.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "labels": {"app": name}}, "spec": pod},
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
        )
        wait = ("wait", "--for=condition=Ready", f"pod/{name}", "-n", self.namespace, "--timeout=120s")
        self.admin.kubectl(*wait, seconds=130)
        return f"{name}.{self.namespace}.svc"

    def close(self) -> None:
        """End the commands that still run."""
        for running in self._running:
            running.kill()

    def _is_own(self, job: str, labels: Mapping[str, str]) -> bool:
        return job.startswith(self.name) or labels.get("trainwright.dev/run", "").startswith(self.name)

    @property
    def _words(self) -> dict[str, str]:
        return {
            "name": self.name,
            "namespace": self.namespace,
            "folder": str(self.folder),
            "claim": CLAIM,
            "launcher": self.admin.image("launcher"),
            "trainer": self.admin.image("trainer"),
        }


def cli(*words: str, seconds: float = 300) -> Any:
    """An action: the command line with these words."""
    return lambda stage: stage.trainwright(*words, seconds=seconds)


def submit(*words: str, seconds: float = 300) -> Any:
    """An action: `trainwright submit` as the run of the scene's name, awaited, with its log."""
    return cli("submit", "--run-id", "{name}", "--wait", "--logs", *words, seconds=seconds)
