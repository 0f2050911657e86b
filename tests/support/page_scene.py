"""A team's afternoon on one cluster: jobs in several phases, two runs to compare, exports with a champion, a started fine-tuning.

The accessibility of each view is tested on it, and the pictures of docs/page.md show it. No program runs: the records are written.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from factories import catalogue_runtime, trainjob

from support.page_cluster import PageCluster, ago, condition, page_cluster
from support.written_exports import write_export
from trainwright.api import names
from trainwright.api.objects import Obj, name_of
from trainwright.api.times import rfc3339
from trainwright.checkpoints.manifest import Manifest
from trainwright.checkpoints.pointers import update_latest
from trainwright.checkpoints.promotion import Alias
from trainwright.materialize import materialize
from trainwright.storage.open import open_store
from trainwright.ui.call import Page
from trainwright.ui.launches.launches import Launches, LaunchFolder
from trainwright.workspace import begin_run, end_run

FIRST, SECOND, FAILED, DONE, QUEUED = "llama-8b-support-a", "llama-8b-support-b", "intent-classifier", "summaries-1b", "qwen-dpo"
STARTED = "support-2026-11"
"""A fine-tuning that was started on the page."""
_STEPS = 600
_DATASET, _MODEL = "sha256:" + "4f7c0d" * 10 + "abcd", "sha256:" + "b81e22" * 10 + "0042"
_CARD = b"""# Support answers, 8B

Fine-tuned with LoRA on 18,204 tickets that were solved at the first contact.

| setting | value |
|---|---|
| rank | 16 |
| learning rate | 0.0002 |
| epochs | 3 |

- **Intended use**: drafts of answers, read by a person before they are sent
- Evaluated on 940 held-out tickets
"""
_REPORT = """# Dataset

| split | rows | tokens |
|---|---|---|
| train | 18,204 | 9,120,448 |
| held out | 940 | 471,002 |

- 312 rows were left out: their answer was empty
"""


@dataclass(frozen=True)
class Scene:
    """`exports` is the URI of the folder of exports."""

    cluster: PageCluster
    page: Page
    exports: str


@contextmanager
def afternoon(folder: Path) -> Iterator[Scene]:
    """Write the records below a folder, and open the cluster."""
    workspace, exports = folder / "claims" / "default" / "data", folder / "exports"
    _write_runs(workspace)
    done = _write_exports(exports)
    _write_evaluation(workspace / "runs" / DONE, done)
    end_run(workspace, f"runs/{DONE}", exported=f"file://{exports}/{DONE}/checkpoint-600")
    launches = Launches(folder / "page" / "runs", start=_start)
    page = Page(
        exports=(f"file://{exports}",),
        workspaces=(folder / "claims",),
        file_roots=(folder,),
        may_read_files=True,
        new_exports=f"file://{exports}",
        orchestrators={"airflow": "https://airflow.example.com", "kfp": "https://kubeflow.example.com/pipeline"},
        launches=launches,
    )
    launches.launch(STARTED, "default", {"model_uri": "hf://org/llama-8b", "promote": "better"})
    research = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research"}}
    with page_cluster(research) as cluster:
        _create_jobs(cluster)
        yield Scene(cluster, page, f"file://{exports}")


def _create_jobs(cluster: PageCluster) -> None:
    for rank, (name, minutes, percent) in enumerate([(FIRST, 190, 64), (SECOND, 150, 51)]):
        made = _running(cluster, name, minutes, percent, f"scheduled__2026-11-2{6 + rank}T02:00:00+00:00")
        for line, printed in _log_lines():
            cluster.write(f"{name}-node-0-0-x0k9f", line, minutes=printed)
        for each in materialize(made, catalogue_runtime("torch-distributed")):
            cluster.create(each)
        cluster.add_event(made, "JobsCreated", "jobset jobs creation completed", minutes=minutes)
    failed = _job(FAILED, owner="kfp/6f0c2a/train", dag="", nodes=2)
    ended = condition("Failed", 22, "FailedJobs", "jobset failed due to one or more job failures")
    made = cluster.add_job(failed, minutes=65, conditions=[ended])
    _failed_pods(cluster, made)
    labels = {names.QUEUE_LABEL: "gpu-a100"}
    waits = condition(
        names.QUOTA_RESERVED, 12, "Pending", "insufficient quota for nvidia.com/gpu in queue gpu-a100: 8 more needed", "False"
    )
    queued = trainjob(QUEUED, namespace="research", labels=labels, nodes=2, suspend=True)
    cluster.add_job(queued, minutes=14, conditions=[waits])
    cluster.add_job(_job("gemma-tickets", owner="alice/gemma-tickets-7/train", dag="", nodes=1), minutes=2)
    suspended = _job("mistral-summaries", owner="kfp/91be77/train", dag="", nodes=4, suspend=True)
    suspended["metadata"]["annotations"][names.SUSPENDED_BY_ANNOTATION] = "bob"
    cluster.add_job(suspended, minutes=60 * 26, conditions=[condition("Suspended", 300)])
    for number, name in enumerate([DONE, "reranker-weekly-46", "reranker-weekly-45"]):
        done = _job(name, owner=f"airflow/retrain_weekly/scheduled__2026-11-{22 - 7 * number}T00:00:00+00:00/train", nodes=1)
        begun = 60.0 * (30 + 24 * 7 * number)
        status = _status(100, 0, loss="0.8123", eval_loss="0.9051", step="600")
        cluster.add_job(done, minutes=begun, conditions=[condition("Complete", begun - 94, "JobsCompleted")], **status)


def _running(cluster: PageCluster, name: str, minutes: float, percent: int, run: str) -> Obj:
    last = _history(1e-4 if name == SECOND else 2e-4, 6 * percent)
    values = {key: str(round(value, 6)) for key, value in last[-1].items()}
    status = _status(percent, 60 * (100 - percent), **values)
    jobs = [{"name": "node", "ready": 4, "succeeded": 0, "failed": 0, "active": 4, "suspended": 0}]
    job = _job(name, owner=f"airflow/finetune_support/{run}/train", nodes=4)
    job["metadata"]["annotations"] |= {names.DATASET_DIGEST_ANNOTATION: _DATASET, names.MODEL_DIGEST_ANNOTATION: _MODEL}
    made = cluster.add_job(job, minutes=minutes, jobsStatus=jobs, **status)
    for rank in range(4):
        running = {"running": {"startedAt": ago(minutes - 3)}}
        pod = cluster.add_pod(made, rank, minutes=minutes - 1, node=f"gpu-{rank + 1}", **running)
        cluster.add_event(pod, "Started", "Started container node", minutes=minutes - 3)
    return made


def _failed_pods(cluster: PageCluster, made: Obj) -> None:
    at = {"startedAt": ago(63), "finishedAt": ago(23)}
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled", **at}}
    other = {"terminated": {"exitCode": 1, "reason": "Error", **at}}
    first = cluster.add_pod(made, 0, minutes=64, node="gpu-5", phase="Failed", **killed)
    cluster.add_pod(made, 1, minutes=64, node="gpu-6", phase="Failed", **other)
    cluster.add_event(
        first, "OOMKilling", "Memory cgroup out of memory: killed process 4711 (python)", minutes=23, kind="Warning"
    )
    cluster.write(name_of(first), b"step 4100 loss 0.31\n", b"step 4200 loss 0.30\n", minutes=24)


def _job(name: str, *, owner: str, nodes: int, dag: str = "", suspend: bool = False) -> Obj:
    folder = f"pvc://data/runs/{name}"
    annotations = {names.OWNER_ANNOTATION: owner, names.RUN_FOLDER_ANNOTATION: folder}
    more: dict[str, Any] = {"suspend": True} if suspend else {}
    resources = {"limits": {"nvidia.com/gpu": "8"}}
    environment = [{"name": "NCCL_DEBUG", "value": "WARN"}]
    made = trainjob(name, nodes=nodes, metadata={"annotations": annotations}, **more)
    made["spec"].setdefault("trainer", {}).update(resourcesPerNode=resources, env=environment)
    return made


def _status(percent: int, seconds: int, **metrics: str) -> dict[str, Any]:
    named = [{"name": name, "value": value} for name, value in metrics.items()]
    told = {"progressPercentage": percent, "estimatedRemainingSeconds": seconds, "metrics": named, "lastUpdatedTime": ago(0)}
    return {"trainerStatus": told}


def _log_lines() -> Iterator[tuple[bytes, float]]:
    """Yield lines of a log, and how many minutes ago each was printed."""
    parameters = "trainable params: 41,943,040 of 8,072,204,288 (0.52 %)"
    yield from [
        (f"{text}\n".encode(), 186) for text in ("NCCL version 2.29.3+cuda13.1", "Loading checkpoint shards: 4 of 4", parameters)
    ]
    for entry in _history(2e-4, 384):
        printed = 185 - entry["step"] * 184 / 384
        yield f"{json.dumps(entry)}\n".encode(), printed
        if entry["step"] % 100 == 0 and "loss" in entry:
            yield f"Saving model checkpoint to /workspace/output/checkpoint-{entry['step']}\n".encode(), printed


def _loss(step: int, rate: float, noise: random.Random) -> float:
    return 0.75 + 1.6 * math.exp(-step * rate * 60) + noise.gauss(0, 0.035)


def _history(rate: float, steps: int) -> list[dict[str, float]]:
    noise, found = random.Random(round(1e6 * rate)), list[dict[str, float]]()
    for step in range(2, steps + 1, 2):
        entry = {"step": step, "loss": round(_loss(step, rate, noise), 4), "learning_rate": round(rate * (1 - step / _STEPS), 8)}
        found.append({**entry, "grad_norm": round(0.4 + abs(noise.gauss(0, 0.1)), 3)})
        if step % 50 == 0:
            found.append({"step": step, "eval_loss": round(_loss(step, rate, noise) + 0.08, 4)})
    return found


def _write_runs(workspace: Path) -> None:
    for name, rate, steps in ((FIRST, 2e-4, 384), (SECOND, 1e-4, 306), (DONE, 2e-4, _STEPS)):
        (workspace / "runs").mkdir(parents=True, exist_ok=True)
        owner = f"airflow/finetune_support/scheduled__2026-11-26/{name}"
        begin_run(workspace, f"runs/{name}", run=name, owner=owner, dataset=_DATASET, model=_MODEL)
        folder = workspace / "runs" / name
        for step in range(100, steps + 1, 100):
            (folder / "output" / f"checkpoint-{step}").mkdir(parents=True)
        newest = folder / "output" / f"checkpoint-{steps // 100 * 100}"
        (newest / "trainer_state.json").write_text(json.dumps({"log_history": _history(rate, steps)}))
        (folder / "dataset-report.md").write_text(_REPORT)


def _write_evaluation(folder: Path, export: Manifest) -> None:
    before, after = (
        {"loss": 1.942, "perplexity": 6.97, "exact_match": 0.11},
        {"loss": 0.905, "perplexity": 2.47, "exact_match": 0.38},
    )
    prompt, answer = "How do I change the address of an invoice?", "Open Billing, choose the invoice, and press Edit address."
    sample = {"prompt": prompt, "expected": answer, "before": "An invoice is a document.", "after": answer}
    counts = {"rows": 940, "trained_rows": 62, "held_out": True}
    result = {"before": before, "after": after, "sample": sample, **counts}
    place = folder / "evaluation" / export.digest.removeprefix("sha256:")[:12]
    place.mkdir(parents=True)
    (place / "result.json").write_text(json.dumps(result))
    (place / "summary.md").write_text("# Evaluation\n\nThe fine-tuned model answers better: loss 0.905, before 1.942.\n")


def _write_exports(exports: Path) -> Manifest:
    """Write the exports; returns the manifest of the champion."""
    begun = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)
    origin = {"dataset": _DATASET, "model": _MODEL}
    for number, (run, step, loss) in enumerate([("summaries-1b-old", 600, 1.113), (DONE, 400, 0.981), (DONE, 600, 0.905)]):
        settings = json.dumps({"r": 16 if run == DONE else 8, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"]}).encode()
        manifest = write_export(
            exports,
            run,
            f"checkpoint-{step}",
            files={"README.md": _CARD, "adapter_config.json": settings, "adapter_model.safetensors": bytes(100_000 + number)},
            metrics={"loss": loss - 0.09, "eval_loss": loss},
            created=rfc3339(begun + timedelta(days=number)),
            metadata={"origin": origin, "owner": "airflow/finetune_support"},
        )
        update_latest(open_store(f"file://{exports}/{run}"), f"checkpoint-{step}", manifest)
    champion = Alias(f"file://{exports}")
    for run, loss in (("summaries-1b-old", 1.113), (DONE, 0.905)):
        champion.promote(
            f"file://{exports}/{run}/checkpoint-600", evaluation={"loss": loss}, reason="lower loss on held-out rows"
        )
    return manifest


def _start(folder: LaunchFolder) -> None:
    """Record how far the process of a started fine-tuning would be."""
    folder.note("started")
    for step in ("start", "dataset", "model"):
        folder.note("begin", step=step)
        folder.note("end", step=step, note={"start": "run support-2026-11", "dataset": "18,204 rows"}.get(step, "16.1 GB"))
    folder.note("begin", step="train")
    folder.note(
        "failed", step="train", message="TrainJobFailed: pod support-2026-11-node-0-0 exited 1\nValueError: no rows with a prompt"
    )
