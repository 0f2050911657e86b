"""An embedded cluster for steps: runtimes whose programs wait for a file, a full queue, and a workspace with a checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.argo_workflows import served_workflows

from trainwright.api import names
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, POD, TRAINJOB
from trainwright.api.objects import Obj, annotations_of, labels_of
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.embedded.home import Home
from trainwright.embedded.options import FeatureGates
from trainwright.embedded.plane import ControlPlane
from trainwright.submission.jobset_mode import JobSetCluster
from trainwright.workspace import run_folder

WEIGHTS_BYTES = 256 * 2**20
FULL_QUEUE = "full"
TRAINING, INITIALIZING = "waits", "initializes-and-waits"
"""The runtimes: a node, and a node after a dataset initializer."""
# Says in a file that it runs, and waits for another that lets it go on.
PROGRAM = """
set -eu
trap 'exit 143' TERM
touch "$0/$TRAINJOB_NAME.$1"
until [ -e "$0/$TRAINJOB_NAME.$1.go" ] || [ -e "$0/$TRAINJOB_NAME.$1.fail" ]; do sleep 0.05; done
if [ -e "$0/$TRAINJOB_NAME.$1.fail" ]; then exit 1; fi
"""
_JOB_NAME = {"fieldRef": {"fieldPath": f"metadata.labels['{names.JOBSET_NAME_LABEL}']"}}


@dataclass(frozen=True)
class StepCluster:
    """`folder` has the files with which the programs of TrainJobs say that they run."""

    plane: ControlPlane
    folder: Path
    exported_run: str = "exported"
    """A run whose folder in the workspace has a checkpoint."""

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def cluster(self) -> EmbeddedCluster:
        return self.plane.cluster

    @property
    def kubeconfig(self) -> Path:
        return self.plane._home.kubeconfig

    def command(self, step: str = "node") -> list[str]:
        """The program of a training."""
        return ["sh", "-c", PROGRAM, str(self.folder), step]

    def file(self, trainjob: str, step: str = "node", what: str = "") -> Path:
        """The file that says that a step of a job runs; with `go` or `fail` the one that ends it so."""
        return self.folder / ".".join(filter(None, (trainjob, step, what)))

    def jobs(self, run: str) -> list[Obj]:
        """The TrainJobs of a run, oldest first, and JobSets that stand for one."""
        jobs = [job for view in (self.cluster, JobSetCluster(self.cluster)) for job in view.list(TRAINJOB, "default").items]
        of_run = [job for job in jobs if annotations_of(job).get(names.OWNER_ANNOTATION, "").startswith(f"kfp/{run}/")]
        return sorted(of_run, key=lambda job: int(annotations_of(job)[names.ATTEMPT_ANNOTATION]))

    def pods(self, trainjob: str) -> list[Obj]:
        """The pods of a TrainJob that may run."""
        pods = [pod for pod in self.cluster.list(POD, "default").items if labels_of(pod).get(names.JOBSET_NAME_LABEL) == trainjob]
        return [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]


@contextmanager
def step_cluster(folder: Path) -> Iterator[StepCluster]:
    queues = f"queues:\n- name: {FULL_QUEUE}\n  quota: {{cpu: 0}}\n"
    with served_workflows():
        yield from _step_cluster(ControlPlane(Home(folder / "home"), gates=FeatureGates(), queues=queues), folder)


def _step_cluster(plane: ControlPlane, folder: Path) -> Iterator[StepCluster]:
    plane.start()
    try:
        for runtime in _runtimes(plane.cluster, folder):
            plane.cluster.create(runtime)
        steps = StepCluster(plane, folder)
        _write_checkpoint(steps.workspace / run_folder(steps.exported_run) / "output" / "checkpoint-1")
        yield steps
    finally:
        plane.stop(2)


def _write_checkpoint(folder: Path) -> None:
    """A checkpoint that takes a while to export."""
    folder.mkdir(parents=True)
    header = json.dumps({"w": {"dtype": "U8", "shape": [WEIGHTS_BYTES], "data_offsets": [0, WEIGHTS_BYTES]}}).encode()
    with (folder / "adapter_model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(WEIGHTS_BYTES // 2**20):
            file.write(os.urandom(2**20))
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (folder / "trainer_state.json").write_text('{"global_step": 1, "log_history": []}')
    for path in folder.iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000))  # nobody writes to it any more


def _runtimes(cluster: EmbeddedCluster, folder: Path) -> Iterator[Obj]:
    runtime = cluster.get(CLUSTER_TRAINING_RUNTIME, "torch-distributed")
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    node["template"]["spec"]["backoffLimit"] = 0
    spec = node["template"]["spec"]["template"]["spec"]
    spec["restartPolicy"] = "Never"
    spec["containers"][0]["env"] = [{"name": "TRAINJOB_NAME", "valueFrom": _JOB_NAME}]
    labels = runtime["metadata"]["labels"]

    def named(name: str, jobs: list[Obj]) -> Obj:
        changed = {**runtime["spec"], "template": {"spec": {"replicatedJobs": jobs}}}
        return {**runtime, "metadata": {"name": name, "labels": labels}, "spec": changed}

    yield named(TRAINING, [node])
    yield named(
        INITIALIZING, [_initializer(folder), {**node, "dependsOn": [{"name": "dataset-initializer", "status": "Complete"}]}]
    )


def _initializer(folder: Path) -> Obj:
    container: dict[str, Any] = {
        "name": "dataset-initializer",
        "image": "example.com/initializer",
        "command": ["sh", "-c", PROGRAM, str(folder), "initializer"],
        "env": [{"name": "TRAINJOB_NAME", "valueFrom": _JOB_NAME}],
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    labels = {names.ANCESTOR_LABEL: "dataset-initializer"}
    return {
        "name": "dataset-initializer",
        "template": {"metadata": {"labels": labels}, "spec": {"backoffLimit": 0, "template": template}},
    }
