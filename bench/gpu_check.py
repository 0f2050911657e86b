"""Benchmarks and checks training on NVIDIA GPUs: TrainJobs on an embedded cluster, and an assertion on the outcome of each scene.

Needs a GPU, torch's CUDA build and the extras `quickstart`; nothing is downloaded. The only baseline is the same fine-tuning on the
CPU of the machine. With `--cpu` a stub of nvidia-smi pretends that there is one GPU, and programs train on the CPU: all but what the
GPU itself does is then checked. Exit status: 0 if every scene passed, 1 if one failed, 2 if there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from trainwright.api.conditions import condition
from trainwright.api.kinds import NODE, TRAINJOB
from trainwright.api.objects import Obj, name_of
from trainwright.api.quantities import parse_quantity
from trainwright.checkpoints.formats.whole_files import training_state
from trainwright.cluster.protocol import Cluster
from trainwright.initializers import DatasetOptions
from trainwright.initializers.report_options import ReportOptions
from trainwright.jobs import (
    Identity,
    StartTimeout,
    StepResult,
    Submission,
    Submitted,
    TrainRequest,
    delete_job,
    run_step,
    submit_or_adopt,
)
from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.jobs.state.cancel import CancelPolicy, cancel_owned_job
from trainwright.jobs.state.pods import pods_of
from trainwright.jobs.submit.resolve import InvalidRequest
from trainwright.quickstart.bundled import bundled_dataset
from trainwright.quickstart.local_cluster import LocalCluster, local_cluster
from trainwright.steps.data.prepare import prepare_run_dataset, prepare_run_model
from trainwright.storage.uri import StorageUri
from trainwright.submission import connect_for_jobs

GPU = "nvidia.com/gpu"
OWNER = "gpu-check"
CLAIM = "gpu-check"
SECONDS = 120
"""Limit of each job, of its start, and of each command."""
WAITING_SECONDS = 5
"""Start deadline of a job that must not start."""
RELEASE_SECONDS = 20
STEPS = 30
"""Of each of the two fine-tunings on the GPU, and of that on the CPU."""
ENDLESS_STEPS = 1_000_000
USED_MIB, FREE_MIB = 200, 64
"""A training on the GPU takes at least so much memory; less than this above the first reading is free."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
# In a process of its own, so that this one does not load torch. 85 million parameters: on a smaller model a GPU shows nothing.
BUILD_MODEL = """
import sys
from pathlib import Path
from trainwright.quickstart import base_model
base_model.PRESETS["gpu"] = base_model.Preset(1024, 768, 2048, 12, 12, 128, 8, 3, 1e-3)
print(base_model.ensure_base_model(Path(sys.argv[1]), preset=sys.argv[2]))
"""
TORCH_FACTS = """
import json, torch
gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "gpus": gpus}))
"""
ARGUMENTS_OF = """
import json, sys, torch
arguments = torch.load(sys.argv[1], weights_only=False)
print(json.dumps({"bf16": arguments.bf16, "use_cpu": arguments.use_cpu}))
"""


class CheckFailed(Exception):
    """A scene ended otherwise than it should. The message says what was expected and what was seen."""


def expect(holds: bool, message: str) -> None:
    if not holds:
        raise CheckFailed(message)


def train_ddp(cpu: bool, steps: int) -> dict[str, object]:
    """The training function of the scene `ddp`: data parallel, with all-reduce and bfloat16. Sent as source."""
    import os

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo" if cpu else "nccl")
    rank, kind = int(os.environ["LOCAL_RANK"]), "cpu" if cpu else "cuda"
    device = torch.device("cpu") if cpu else torch.device("cuda", rank)
    if not cpu:
        torch.cuda.set_device(device)
    torch.manual_seed(7)
    layers = [torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(512, 256, device=device)
    goal = torch.tanh(inputs)
    losses = []
    for _ in range(steps):
        with torch.autocast(kind, torch.bfloat16):
            output = model(inputs)
            loss = torch.nn.functional.mse_loss(output.float(), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    total = torch.tensor(float(dist.get_rank() + 1), device=device)
    dist.all_reduce(total)
    seen = {
        "backend": dist.get_backend(),
        "world": dist.get_world_size(),
        "sum_of_ranks": total.item(),
        "cuda": torch.cuda.is_available(),
        "devices": torch.cuda.device_count(),
        "device": str(next(model.parameters()).device),
        "memory": 0 if cpu else torch.cuda.max_memory_allocated(),
        "dtype": str(output.dtype),
        "losses": [losses[0], losses[-1]],
    }
    dist.destroy_process_group()
    return seen


def see_devices(compute: bool) -> dict[str, object]:
    """The training function of small jobs: the devices that a pod sees; with `compute` it uses the first one."""
    import os

    import torch

    seen: dict[str, object] = {"devices": torch.cuda.device_count(), "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}
    if compute:
        ones = torch.ones(1024, 1024, device="cuda", dtype=torch.bfloat16)
        seen["sum"] = (ones @ ones).float().mean().item()
    return seen


@dataclass
class Bench:
    """One cluster with one node, and what all scenes need. `gpus` are those that torch sees, or 1 with `cpu`."""

    folder: Path
    runs: Path
    local: LocalCluster
    gpus: int
    cpu: bool
    idle_mib: int = 0
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def cluster(self) -> Cluster:
        return connect_for_jobs(self.local.home.kubeconfig)

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def steps(self) -> int:
        return 10 if self.cpu else STEPS

    def run(self, run: str, **fields: Any) -> StepResult:
        """Run a job to its end, with a limit on its start and its time. Raises as `run_step`."""
        return run_step(Submission(self.cluster, self.request(**fields), Identity(OWNER, run, "train"), "default"))

    def submit(self, run: str, **fields: Any) -> Submitted:
        return submit_or_adopt(Submission(self.cluster, self.request(**fields), Identity(OWNER, run, "train"), "default"))

    def request(self, **fields: Any) -> TrainRequest:
        limits = {"start_timeout_seconds": SECONDS, "run_timeout_seconds": SECONDS, **fields.pop("limits", {})}
        return TrainRequest.parse({"limits": limits, "ending": {"on_cancel": "delete"}, "env": OFFLINE, **fields})

    def gpu_fields(self, gpus: int) -> dict[str, Any]:
        """The request's fields for that many GPUs of a node; where they are pretended, torchrun must not count them."""
        return {"resources_per_node": {GPU: str(gpus)}, **({"num_proc_per_node": gpus} if self.cpu else {})}

    def sft_fields(self, steps: int, *, cpu: bool) -> dict[str, Any]:
        """The request's fields for a fine-tuning with TRL on the bundled data."""
        settings = {
            "method": "lora",
            "steps": steps,
            "learning_rate": 1e-2 if self.cpu else 2e-3,
            "batch_size": 8 if self.cpu else 16,
            "max_length": 256,
            "save_steps": self.steps // 2,
            "logging_steps": 2,
            "seed": 3,
            "cpu": cpu,
            "extra": ["--lr_scheduler_type", "constant"],
        }
        return {"runtime": "trl-sft", "workspace": f"pvc://{CLAIM}", "settings": settings, **self.digests}

    def preference_fields(self, trainer: str) -> dict[str, Any]:
        """The request's fields for a training on preferences; its first logged loss is that of a model that knows none."""
        own = {"logging_steps": 1, "learning_rate": 1e-3, "save_steps": self.steps}
        settings = self.sft_fields(self.steps, cpu=self.cpu)["settings"] | own
        return {"builtin": trainer, "workspace": f"pvc://{CLAIM}", "settings": settings, **self.digests}

    def prepare(self, run: str, model: Path, dataset_uri: str = "") -> None:
        """Prepare data (by default the bundled ones) and model of a run in the workspace, as the steps of a pipeline do."""
        dataset_uri = dataset_uri or bundled_dataset()
        dataset, _ = prepare_run_dataset(dataset_uri, self.workspace, DatasetOptions(), ReportOptions(), owner=OWNER, run_id=run)
        base = prepare_run_model(str(StorageUri.from_path(model)), self.workspace, owner=OWNER, run_id=run)
        self.digests = {
            "dataset_uri": dataset_uri,
            "model_uri": str(StorageUri.from_path(model)),
            "dataset_digest": dataset.digest,
            "model_digest": base.digest,
        }

    def output(self, run: str) -> Path:
        return self.workspace / Identity(OWNER, run, "train").folder / "output"

    def base_model(self) -> Path:
        """Build the base model, or return the one that was built."""
        printed = python("-P", "-c", BUILD_MODEL, str(self.runs / ".models"), "tiny" if self.cpu else "gpu")
        return Path(printed.splitlines()[-1])


def node_scene(bench: Bench) -> dict[str, Any]:
    """The node offers as many GPUs as torch sees."""
    status = bench.cluster.get(NODE, "local")["status"]
    offered = {group: str(parse_quantity(status[group].get(GPU, 0))) for group in ("capacity", "allocatable")}
    expect(set(offered.values()) == {str(bench.gpus)}, f"the node should offer {bench.gpus} of {GPU}, but offers {offered}")
    isolation = condition({"status": status}, "PodIsolation") or {}
    return {**offered, "isolation": isolation.get("reason"), "why": isolation.get("message")}


def doctor_scene(bench: Bench) -> dict[str, Any]:
    """`trainwright doctor` and `trainwright status` find nothing that is missing."""
    findings = json.loads(trainwright("doctor", "--home", str(bench.local.home.path), "--runtime", "trl-sft", "-o", "json"))
    missing = [finding for finding in findings["findings"] if finding["level"] == "missing"]
    expect(findings["verdict"] != "missing", f"doctor reports as missing: {missing}")
    about = [finding["message"] for finding in findings["findings"] if "gpu" in json.dumps(finding).lower()]
    return {
        "verdict": findings["verdict"],
        "about_gpus": about,
        "status": trainwright("status", "--home", str(bench.local.home.path)),
    }


def ddp_scene(bench: Bench) -> dict[str, Any]:
    """Torch's data parallel training over NCCL, one process for each GPU, in bfloat16."""
    done = bench.run("ddp", func=train_ddp, func_args={"cpu": bench.cpu, "steps": 60}, **bench.gpu_fields(bench.gpus))
    seen: dict[str, Any] = done.results_as_object()
    first, last = seen["losses"]
    expect(seen["world"] == bench.gpus, f"{bench.gpus} processes should train: {seen}")
    expect(seen["sum_of_ranks"] == bench.gpus * (bench.gpus + 1) / 2, f"the all-reduce is wrong: {seen}")
    expect(math.isfinite(last) and last < first / 2, f"the loss should fall to less than half: {seen}")
    expect(seen["dtype"] == "torch.bfloat16", f"the forward pass should be bfloat16: {seen}")
    if not bench.cpu:
        expect(seen["cuda"] and seen["devices"] == bench.gpus, f"the pod should see {bench.gpus} GPUs: {seen}")
        expect(seen["backend"] == "nccl" and seen["device"] == "cuda:0" and seen["memory"] > 0, f"it should use a GPU: {seen}")
    return seen


def sft_scene(bench: Bench) -> dict[str, Any]:
    """LoRA with TRL, resumed from its checkpoint, exported and verified; then the same on the CPU of this machine."""
    began = time.monotonic()
    model = bench.base_model()
    bench.prepare("sft", model)
    figures: dict[str, Any] = {"prepare_seconds": time.monotonic() - began}
    gpu = bench.gpu_fields(bench.gpus)
    with peak_memory(bench) as peak:
        began = time.monotonic()
        first = bench.run("sft", **bench.sft_fields(bench.steps, cpu=bench.cpu), **gpu)
        figures["gpu_job_seconds"] = time.monotonic() - began
        delete_and_wait(bench.cluster, first.trainjob)
        began = time.monotonic()
        second = bench.run("sft", **bench.sft_fields(2 * bench.steps, cpu=bench.cpu), **gpu)
        figures["resumed_job_seconds"] = time.monotonic() - began
    checkpoint = bench.output("sft") / f"checkpoint-{2 * bench.steps}"
    figures |= {"gpu_training": first.metrics, "started_from": second.started_from, "losses": losses_of(checkpoint)}
    expect(
        second.started_from.startswith(f"checkpoint-{bench.steps} "),
        f"it should resume from the checkpoint: {second.started_from}",
    )
    check_losses(figures["losses"], 2 * bench.steps)
    arguments = json.loads(python("-P", "-c", ARGUMENTS_OF, str(checkpoint / "training_args.bin")).splitlines()[-1])
    figures["arguments"] = arguments
    expect(arguments == {"bf16": not bench.cpu, "use_cpu": bench.cpu}, f"it should train in bfloat16 on the GPU: {arguments}")
    if not bench.cpu:
        figures["peak_mib"] = peak[0] - bench.idle_mib
        expect(figures["peak_mib"] > USED_MIB, f"the GPU's memory rose by {figures['peak_mib']} MiB only, from {bench.idle_mib}")
    figures["export"] = export(bench, "sft")
    if not bench.cpu:
        bench.prepare("sft-cpu", model)
        began = time.monotonic()
        cores = {"cpu": str(max((os.cpu_count() or 1) // 2, 1))}  # its threads
        slow = bench.run("sft-cpu", **bench.sft_fields(bench.steps, cpu=True), num_proc_per_node=1, resources_per_node=cores)
        figures |= {"cpu_job_seconds": time.monotonic() - began, "cpu_training": slow.metrics}
        check_losses(losses_of(bench.output("sft-cpu") / f"checkpoint-{bench.steps}"), bench.steps)
    return figures


def preferences_scene(bench: Bench) -> dict[str, Any]:
    """DPO and KTO with TRL and LoRA: they begin with the loss of a model that prefers nothing, and it falls; exported and verified."""
    figures: dict[str, Any] = {}
    model = bench.base_model()
    dataset = str(StorageUri.from_path(write_preferences(bench.folder / "preferences")))
    for trainer, first in (("dpo", math.log(2)), ("kto", 0.5)):
        bench.prepare(trainer, model, dataset)
        began = time.monotonic()
        bench.run(trainer, **bench.preference_fields(trainer), **bench.gpu_fields(bench.gpus))
        losses = losses_of(bench.output(trainer) / f"checkpoint-{bench.steps}")
        check_losses(losses, bench.steps)
        expect(math.isclose(losses[1], first, rel_tol=0.02), f"{trainer} should begin with the loss {first:.3f}: {losses}")
        figures[trainer] = {"seconds": time.monotonic() - began, "losses": losses, "export": export(bench, trainer)}
    return figures


def write_preferences(folder: Path) -> Path:
    """Write pairs of answers: the right one of the bundled data, and that to another question."""
    folder.mkdir(exist_ok=True)
    rows = [json.loads(line) for line in StorageUri.parse(bundled_dataset()).path.read_text("utf-8").splitlines()]
    others = [*rows[len(rows) // 2 :], *rows[: len(rows) // 2]]
    pairs = [
        {"prompt": row["instruction"] + "\n", "chosen": row["output"], "rejected": other["output"]}
        for row, other in zip(rows, others, strict=True)
        if row["output"] != other["output"]
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), "utf-8")
    return folder


def qlora_scene(bench: Bench) -> dict[str, Any]:
    """QLoRA: weights in 4 bits take less memory than LoRA's in float32, and the loss falls. Needs bitsandbytes, and a GPU."""
    fields = bench.sft_fields(bench.steps, cpu=False)
    fields["settings"] |= {"method": "qlora"}
    if bench.cpu:
        fields["settings"] |= {"cpu": True}
        try:
            bench.run("qlora", **fields)
        except InvalidRequest as error:
            return {"refused": str(error)}
        raise CheckFailed("QLoRA started on a CPU")
    bench.prepare("qlora", bench.base_model())
    began = time.monotonic()
    with peak_memory(bench) as peak:
        done = bench.run("qlora", **{**fields, **bench.digests}, **bench.gpu_fields(bench.gpus))
    losses = losses_of(bench.output("qlora") / f"checkpoint-{bench.steps}")
    check_losses(losses, bench.steps)
    figures = {
        "seconds": time.monotonic() - began,
        "losses": losses,
        "training": done.metrics,
        "peak_mib": peak[0] - bench.idle_mib,
    }
    return {**figures, "export": export(bench, "qlora")}


def sharing_scene(bench: Bench) -> dict[str, Any]:
    """All GPUs are taken by a training: others wait for one, with the reason; suspending the training frees them."""
    bench.prepare("endless", bench.base_model())
    fields = bench.sft_fields(ENDLESS_STEPS, cpu=bench.cpu) | {"run_timeout_seconds": 2 * SECONDS}
    training = bench.submit("endless", **fields, **bench.gpu_fields(bench.gpus)).trainjob
    try:
        return share_with(bench, training)
    finally:
        delete_job(bench.cluster, training)


def share_with(bench: Bench, training: Obj) -> dict[str, Any]:
    """Submit other jobs while that training has all GPUs; suspend it."""
    output = bench.output("endless")
    wait_until(lambda: any(output.glob("checkpoint-*/trainer_state.json")), SECONDS, "a checkpoint of the training")
    figures: dict[str, Any] = {"used_mib": used_mib(bench) - bench.idle_mib}
    if not bench.cpu:
        expect(figures["used_mib"] > USED_MIB, f"the training should use the GPU's memory: {figures}")
    small = {"func": see_devices, "func_args": {"compute": not bench.cpu}, **bench.gpu_fields(1)}
    figures["late"] = refused(bench, "late", **small, limits={"start_timeout_seconds": WAITING_SECONDS})
    expect(f"Insufficient {GPU}" in figures["late"], f"the deadline's message should name {GPU}: {figures['late']}")
    figures["too_large"] = refused(
        bench, "too-large", **small, num_nodes=bench.gpus + 1, limits={"start_timeout_seconds": WAITING_SECONDS}
    )
    expect(GPU in figures["too_large"], f"a job that never fits should be refused with the reason: {figures['too_large']}")
    # docs/pods.md: devices of the machine are visible to all containers, also to those that asked for none.
    none = bench.run("no-gpu", func=see_devices, func_args={"compute": False}, num_proc_per_node=1).results_as_object()
    expect(bench.cpu or none["devices"] == bench.gpus, f"a pod sees all {bench.gpus} devices of the machine: {none}")
    figures["without_gpu"] = none
    waiting = bench.submit("next", **small).trainjob
    wait_until(lambda: is_unschedulable(bench.cluster, waiting), SECONDS, "a pod that waits for a GPU")
    began = time.monotonic()
    figures["suspended"] = cancel_owned_job(bench.cluster, training, CancelPolicy.suspend)
    expect("still running" not in figures["suspended"], f"the training's pods should have ended: {figures['suspended']}")
    figures["suspend_seconds"] = time.monotonic() - began
    got = bench.run("next", **small).results_as_object()
    figures |= {"next": got, "next_seconds": time.monotonic() - began}
    expect(bench.cpu or got.get("sum") == 1024, f"the next job should compute on the GPU: {got}")
    wait_until(lambda: used_mib(bench) - bench.idle_mib < FREE_MIB, RELEASE_SECONDS, "free GPU memory after both jobs")
    return figures


SCENES: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "node": node_scene,
    "doctor": doctor_scene,
    "ddp": ddp_scene,
    "sharing": sharing_scene,
    "sft": sft_scene,
    "preferences": preferences_scene,
    "qlora": qlora_scene,
}


def refused(bench: Bench, run: str, **fields: Any) -> str:
    """Run a job that must not start; returns the message of its start deadline. Raises CheckFailed if it starts."""
    try:
        bench.run(run, **fields)
    except StartTimeout as error:
        return str(error)
    raise CheckFailed(f"the job {run} started, although no GPU was free")


def delete_and_wait(cluster: Cluster, name: str) -> None:
    """Delete a finished job, so that its step can be submitted with other settings; wait until it and its pods are gone."""
    trainjob = cluster.get(TRAINJOB, name, "default")
    delete_job(cluster, trainjob)

    def is_gone() -> bool:
        jobs = cluster.list(TRAINJOB, "default").items
        return all(name_of(job) != name for job in jobs) and not pods_of(cluster, trainjob)

    wait_until(is_gone, SECONDS, f"the end of the TrainJob {name} and its pods")


def is_unschedulable(cluster: Cluster, trainjob: Obj) -> bool:
    found = [condition(pod, "PodScheduled") or {} for pod in pods_of(cluster, trainjob, "node")]
    return any(each.get("reason") == "Unschedulable" and f"Insufficient {GPU}" in each.get("message", "") for each in found)


def losses_of(checkpoint: Path) -> dict[int, float]:
    """Step to loss, of the whole training up to that checkpoint."""
    history: Any = training_state(checkpoint).get("log_history") or []
    return {entry["step"]: entry["loss"] for entry in history if "loss" in entry}


def check_losses(losses: dict[int, float], steps: int) -> None:
    """Check that the losses go on to the last step, are finite, and fall. Raises CheckFailed."""
    values = list(losses.values())
    expect(bool(losses) and list(losses) == sorted(losses) and max(losses) == steps, f"losses up to step {steps}: {losses}")
    expect(all(math.isfinite(value) for value in values), f"losses should be finite: {losses}")
    early, late = values[: len(values) // 2], values[len(values) // 2 :]
    expect(sum(late) / len(late) < sum(early) / len(early), f"losses should fall: {losses}")


def export(bench: Bench, run: str) -> str:
    """Export the run's newest checkpoint and read all of it back; returns its URI."""
    target = str(StorageUri.from_path(bench.folder / "exports"))
    exported = json.loads(trainwright("export", str(bench.output(run)), target, "-o", "json"))
    trainwright("verify", exported["uri"])
    return str(exported["uri"])


@contextmanager
def peak_memory(bench: Bench) -> Iterator[list[int]]:
    """Yield a list whose only entry rises to the greatest memory of the GPUs in use, in MiB; read four times a second."""
    peak, ended = [0], threading.Event()

    def follow() -> None:
        while not ended.wait(0.25):
            peak[0] = max(peak[0], used_mib(bench))

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join(SECONDS)


def used_mib(bench: Bench) -> int:
    """Return the memory of all GPUs in use, in MiB; 0 where they are pretended."""
    if bench.cpu:
        return 0
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    return sum(int(line) for line in done.stdout.split())


def wait_until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for a condition. Raises CheckFailed after that time."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise CheckFailed(f"there was not within {seconds:g} s: {what}")
        time.sleep(0.1)


def python(*arguments: str) -> str:
    """Run this interpreter; returns its standard output. Raises CheckFailed with the end of its error output."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **OFFLINE},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    expect(done.returncode == 0, f"python {' '.join(arguments[-3:])[-200:]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def trainwright(*arguments: str) -> str:
    return python("-P", "-m", "trainwright.cli", *arguments)


def play(bench: Bench, name: str) -> dict[str, Any]:
    """Play a scene and print one line about it; returns its entry of the report."""
    began = time.monotonic()
    entry: dict[str, Any] = {"scene": name}
    try:
        entry |= {"verdict": "passed", "figures": SCENES[name](bench)}
    except Cancelled:  # a signal: the job has been stopped
        raise KeyboardInterrupt from None
    except Exception as error:  # whatever it is, it is reported, and the other scenes are played
        entry |= {"verdict": "failed", "error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()[-4000:]}
    entry["seconds"] = round(time.monotonic() - began, 1)
    print(f"{name:8} {entry['seconds']:6.1f} s  {entry['verdict']}  {entry.get('error', '')}", flush=True)
    return entry


def pretend_gpu(folder: Path) -> None:
    """Put a stub of nvidia-smi first in PATH, which lists one GPU."""
    stub = folder / "bin/nvidia-smi"
    stub.parent.mkdir(parents=True)
    stub.write_text("#!/bin/sh\necho 'GPU 0: pretended'\n", "utf-8")
    stub.chmod(0o755)
    os.environ["PATH"] = f"{stub.parent}{os.pathsep}{os.environ['PATH']}"


def check(folder: Path, scenes: list[str], torch: dict[str, Any], *, cpu: bool) -> Iterator[dict[str, Any]]:
    """Start a cluster in the folder, play the scenes, and stop it. Yields the entry of each scene."""
    if cpu:
        pretend_gpu(folder)
    with local_cluster(folder / "runs", Console(stderr=True)) as local:
        bench = Bench(folder, folder / "runs", local, 1 if cpu else len(torch["gpus"]), cpu)
        bench.idle_mib = used_mib(bench)
        local.ready()
        bench.workspace.mkdir()
        local.create_claim(CLAIM, bench.workspace)
        for name in scenes:
            yield play(bench, name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="pretend one GPU, and train on the CPU")
    parser.add_argument("--scenes", default=",".join(SCENES), help="those to play, separated by commas; default: %(default)s")
    parser.add_argument("--json", type=Path, help="file for the figures of all scenes")
    parser.add_argument("--folder", type=Path, help="new folder for the cluster, its logs and the runs, which is kept")
    options = parser.parse_args()
    scenes = options.scenes.split(",")
    if unknown := set(scenes) - set(SCENES):
        parser.error(f"unknown scenes: {', '.join(sorted(unknown))}; known: {', '.join(SCENES)}")
    torch = json.loads(python("-P", "-c", TORCH_FACTS))
    print(json.dumps(torch), flush=True)
    if not torch["gpus"] and not options.cpu:
        print("torch finds no NVIDIA GPU; --cpu plays the scenes with a pretended one", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary) / "check").absolute()
        folder.mkdir(parents=True)
        entries: list[dict[str, Any]] = []
        for entry in check(folder, scenes, torch, cpu=options.cpu):
            entries.append(entry)
            if options.json is not None:  # after each scene, because a signal ends the others
                report = {"machine": torch, "cpu": options.cpu, "scenes": entries}
                options.json.write_text(json.dumps(report, indent=1), "utf-8")
    return 0 if all(entry["verdict"] == "passed" for entry in entries) else 1


if __name__ == "__main__":
    sys.exit(main())
