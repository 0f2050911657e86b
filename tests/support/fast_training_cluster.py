"""Fixture: one embedded cluster whose runtime `fast` is trl-sft with a small program in the place of TRL.

The initializers and the init container `resume-point` are the real ones, as processes of the embedded node.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME
from trainwright.api.objects import Obj, name_of, named
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.controlplane.gates import FeatureGates
from trainwright.controlplane.home import Home
from trainwright.controlplane.plane import ControlPlane
from trainwright.initializers import DatasetOptions
from trainwright.initializers.report_options import ReportOptions
from trainwright.jobs import Deadlines, Identity, TrainRequest
from trainwright.jobs.wait.run_to_end import run_to_end
from trainwright.steps.prepare import prepare_run_dataset, prepare_run_model
from trainwright.storage.uri import StorageUri

DEADLINES = Deadlines(queue=60, start=60, run=60)
# Five steps further than the checkpoint that it is told of. What it read stands in the checkpoint. BARRIER is a folder in which
# two jobs wait for each other, FAIL a file that makes it fail as long as it is there.
TRAINING = """
import json, os, pathlib, shutil, sys, time
config, output, dataset, model = map(pathlib.Path, sys.argv[1:5])
resumed = json.loads(config.read_text()).get("resume_from_checkpoint", "")
start = int(resumed.rpartition("-")[2] or 0)
if os.environ.get("BARRIER"):
    barrier = pathlib.Path(os.environ["BARRIER"])
    (barrier / os.environ["TRAINJOB_NAME"]).touch()
    deadline = time.monotonic() + 40
    while len(list(barrier.iterdir())) < 2:
        assert time.monotonic() < deadline, "the other job does not train at the same time"
        time.sleep(0.02)
read = {"rows": (dataset / "train.jsonl").read_text(), "model": (model / "config.json").read_text()}
checkpoint = output / f"checkpoint-{start + 5}"
shutil.copytree(pathlib.Path(__file__).with_name("template"), checkpoint)
(checkpoint / "adapter_config.json").write_text(json.dumps({**read, "start": start, "arguments": sys.argv[5:]}))
history = [{"step": step, "loss": 1 / (step + 1)} for step in range(1, start + 6)]
(checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": start + 5, "log_history": history}))
sys.exit(os.path.exists(os.environ.get("FAIL", "")))
"""
EVALUATION = """
import argparse, json, pathlib
parser = argparse.ArgumentParser()
for name in ("base", "data", "checkpoint", "out", "sample-row"):
    parser.add_argument("--" + name, type=pathlib.Path, required=True)
told = parser.parse_args()
assert (told.base / "config.json").is_file() and (told.data / "train.jsonl").is_file()
trained_on = json.loads((told.checkpoint / "adapter_config.json").read_text())
assert trained_on["rows"] == (told.data / "train.jsonl").read_text(), "the evaluation has other data than the training"
losses = {"before": {"loss": 4.0, "perplexity": 54.6}, "after": {"loss": 1.0, "perplexity": 2.7}}
sample = {"prompt": "p", "expected": "e", "before": "b", "after": "a"}
told.out.write_text(json.dumps({**losses, "rows": 2, "held_out": True, "sample": sample}))
"""
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
        request = TrainRequest(**{"runtime": "fast", "workspace": f"pvc://{claim}", **inputs.uris, **fields})
        return run_to_end(self.cluster, request, Identity(owner, run, step), "default", deadlines=DEADLINES)


def prepared(workspace: Path, run: str, inputs: Inputs) -> dict[str, str]:
    """The digests of inputs that the steps of a pipeline have prepared."""
    dataset, _ = prepare_run_dataset(inputs.dataset, workspace, DatasetOptions(), ReportOptions(), owner="kfp", run_id=run)
    model = prepare_run_model(inputs.model, workspace, owner="kfp", run_id=run)
    return {"dataset_digest": dataset.digest, "model_digest": model.digest}


def learned(checkpoint: Path) -> dict[str, Any]:
    """What a checkpoint of the program says that it read: `rows`, `model`, `start`, `arguments`."""
    told: dict[str, Any] = json.loads((checkpoint / "adapter_config.json").read_bytes())
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
    """The cluster with its runtimes `fast`, `fast-node` (without initializers) and `fast-evaluation`."""
    (folder / "training.py").write_text(TRAINING)
    (folder / "evaluation.py").write_text(EVALUATION)
    _write_template(folder / "template")
    plane = ControlPlane(Home(folder / "home"), gates=FeatureGates())
    plane.start()
    paths = ["/resume/trl.yaml", "/workspace/output", "/workspace/dataset", "/workspace/model"]
    fast = variant_of(plane, "trl-sft", "fast", ["python", str(folder / "training.py"), *paths])
    alone = _node_alone({**fast, "metadata": {**fast["metadata"], "name": "fast-node"}})
    evaluation = ["python", str(folder / "evaluation.py"), "--base", "/workspace/model", "--data", "/workspace/dataset"]
    for runtime in (fast, alone, variant_of(plane, "causal-lm-evaluation", "fast-evaluation", evaluation)):
        plane.cluster.create(runtime)
    try:
        yield Runs(plane, folder)
    finally:
        plane.stop(2)


def variant_of(plane: ControlPlane, of: str, name: str, command: list[str]) -> Obj:
    """The bundled runtime `of`, whose nodes run another program, which stands for TRL's script if `of` runs that."""
    runtime = plane.cluster.get(CLUSTER_TRAINING_RUNTIME, of)
    (job,) = (job for job in runtime["spec"]["template"]["spec"]["replicatedJobs"] if name_of({"metadata": job}) == "node")
    node = named(job["template"]["spec"]["template"]["spec"]["containers"], "node")
    assert node is not None
    scripts = [word for word in node.get("command") or [] if word.startswith("trl.scripts.")]
    # Python ignores such an option: it only tells the builtin trainer whose settings the program takes.
    node["command"] = [command[0], *(word for script in scripts for word in ("-X", script)), *command[1:]]
    node.pop("args", None)
    return {**runtime, "metadata": {"name": name, "labels": runtime["metadata"]["labels"]}}


def _node_alone(runtime: Obj) -> Obj:
    (node,) = (job for job in runtime["spec"]["template"]["spec"]["replicatedJobs"] if job["name"] == "node")
    node = {key: value for key, value in node.items() if key != "dependsOn"}
    return {**runtime, "spec": {**runtime["spec"], "template": {"spec": {"replicatedJobs": [node]}}}}


def _write_template(folder: Path) -> None:
    """The files of a checkpoint that are the same in each."""
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(EMPTY_WEIGHTS)
    state = io.BytesIO()
    with zipfile.ZipFile(state, "w") as archive:
        archive.writestr("archive/data.pkl", b"state")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (folder / name).write_bytes(state.getvalue())
