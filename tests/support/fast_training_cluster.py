"""Fixture: one embedded cluster whose runtime `fast` is trl-sft with the scripted trainer in the place of torchrun and TRL.

The initializers and the init container `resume-point` are the real ones, as processes of the embedded node.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factories import train_request

from support.running_plane import running_plane
from support.scripted_image import SCRIPT, scripted_programs
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME
from trainwright.api.objects import Obj, name_of, named
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.embedded.plane import ControlPlane
from trainwright.initializers import DatasetOptions
from trainwright.initializers.report_options import ReportOptions
from trainwright.jobs import Deadlines, Identity, Submission, Waiting
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.run_step import run_to_end
from trainwright.steps.data.prepare import prepare_run_dataset, prepare_run_model
from trainwright.storage.uri import StorageUri

DEADLINES = Deadlines(queue=60, start=60, run=60)
EVALUATION = ["python", "-m", "trainwright.evaluation.program"]
EMPTY_WEIGHTS = (2).to_bytes(8, "little") + b"{}"


@dataclass(frozen=True)
class Inputs:
    """Sources of a run: a dataset and a model that no other inputs are."""

    dataset: str
    model: str

    @property
    def uris(self) -> dict[str, str]:
        return {"dataset_uri": self.dataset, "model_uri": self.model}


class Runs:
    """Runs on claims of one cluster."""

    def __init__(self, plane: ControlPlane, folder: Path):
        self.plane, self.folder = plane, folder

    @property
    def cluster(self) -> EmbeddedCluster:
        return self.plane.cluster

    def claim(self, name: str) -> Path:
        """The folder of a new claim; it is there before the first pod."""
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": name, "namespace": "default"}
        self.cluster.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
        folder = self.folder / "home/node/claims/default" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def inputs(self, word: str) -> Inputs:
        """A dataset and a model that speak of `word`."""
        source = self.folder / "sources" / word
        (source / "model").mkdir(parents=True, exist_ok=True)
        rows = [{"prompt": f"{word} {number}?", "completion": f"{word}!"} for number in range(20)]
        (source / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        config = json.dumps({"architectures": ["LlamaForCausalLM"], "word": word}).encode()
        for name, content in (("config.json", config), ("tokenizer.json", b"{}"), ("model.safetensors", EMPTY_WEIGHTS)):
            (source / "model" / name).write_bytes(content)
        return Inputs(str(StorageUri.from_path(source / "rows.jsonl")), str(StorageUri.from_path(source / "model")))

    def train(self, claim: str, run: str, inputs: Inputs, *, owner: str = "kfp", step: str = "train", **fields: Any) -> Obj:
        """Train to the end; returns the TrainJob. Raises as `run_to_end`."""
        request = train_request(**{"runtime": "fast", "workspace": f"pvc://{claim}", **inputs.uris, **fields})
        return run_to_end(
            Submission(self.cluster, request, Identity(owner, run, step), "default"), Waiting(WaitSettings(deadlines=DEADLINES))
        )


def prepared(workspace: Path, run: str, inputs: Inputs) -> dict[str, str]:
    """The digests of inputs that the steps of a pipeline have prepared."""
    dataset, _ = prepare_run_dataset(inputs.dataset, workspace, DatasetOptions(), ReportOptions(), owner="kfp", run_id=run)
    model = prepare_run_model(inputs.model, workspace, owner="kfp", run_id=run)
    return {"dataset_digest": dataset.digest, "model_digest": model.digest}


def script(**fields: Any) -> dict[str, str]:
    """The variable of the scripted trainer with the fields of a `Script`."""
    return {SCRIPT: json.dumps(fields)}


def learned(checkpoint: Path) -> dict[str, Any]:
    """What the scripted trainer has read for a checkpoint: `rows`, `model`, `start`, `arguments`."""
    told: dict[str, Any] = json.loads((checkpoint / "trainer_state.json").read_bytes())["scripted"]
    return told


def is_of(checkpoint: Path, word: str) -> bool:
    """Whether data and model of `word`, and none else, went into a checkpoint."""
    told = learned(checkpoint)
    prompts = {json.loads(line)["prompt"].split()[0] for line in told["rows"].splitlines()}
    return prompts == {word} and json.loads(told["model"])["word"] == word


def contents(folder: Path) -> dict[str, str]:
    """Path to digest of every file below a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def times(folder: Path) -> dict[str, int]:
    """Path to the time of its last change, of everything below a folder."""
    return {str(path.relative_to(folder)): path.lstat().st_mtime_ns for path in sorted(folder.rglob("*"))}


@contextmanager
def running(folder: Path) -> Iterator[Runs]:
    """The cluster with its runtimes `fast`, `fast-node` (without initializers), `fast-evaluation` and `fast-comparison`.

    `fast-comparison` also evaluates checkpoints on other data than those that they were trained on.
    """
    trainer, evaluation = (str(program) for program in scripted_programs(folder / "programs"))
    with running_plane(folder) as plane:
        fast = _variant_of(plane, "trl-sft", "fast", ["torchrun"], ["python", trainer])
        comparison = _variant_of(plane, "causal-lm-evaluation", "fast-comparison", EVALUATION, ["python", evaluation])
        same = _variant_of(plane, "causal-lm-evaluation", "fast-evaluation", EVALUATION, ["python", evaluation, "--same-data"])
        for runtime in (fast, _node_alone({**fast, "metadata": {**fast["metadata"], "name": "fast-node"}}), comparison, same):
            plane.cluster.create(runtime)
        yield Runs(plane, folder)


def _variant_of(plane: ControlPlane, of: str, name: str, words: list[str], instead: list[str]) -> Obj:
    """The bundled runtime `of` without its arguments, the command of whose nodes begins with other words."""
    runtime = plane.cluster.get(CLUSTER_TRAINING_RUNTIME, of)
    (job,) = (job for job in runtime["spec"]["template"]["spec"]["replicatedJobs"] if name_of({"metadata": job}) == "node")
    node = named(job["template"]["spec"]["template"]["spec"]["containers"], "node")
    assert node is not None
    assert node["command"][: len(words)] == words
    node["command"] = [*instead, *node["command"][len(words) :]]
    node.pop("args", None)
    return {**runtime, "metadata": {"name": name, "labels": runtime["metadata"]["labels"]}}


def _node_alone(runtime: Obj) -> Obj:
    (node,) = (job for job in runtime["spec"]["template"]["spec"]["replicatedJobs"] if job["name"] == "node")
    node = {key: value for key, value in node.items() if key != "dependsOn"}
    return {**runtime, "spec": {**runtime["spec"], "template": {"spec": {"replicatedJobs": [node]}}}}
