"""Evaluating an exported checkpoint: copied back and verified, then measured by a job beside the base model, and summed up."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwright.checkpoints import Manifest, restore_checkpoint, verify_export
from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.hf_trainer import training_state
from trainwright.cluster.protocol import Cluster
from trainwright.evaluation.loss_curve import loss_curve_html
from trainwright.evaluation.summary import markdown_summary
from trainwright.jobs import Identity, Teller, TrainRequest, run_step
from trainwright.jobs.run import Leave
from trainwright.storage.transfer import write_bytes
from trainwright.workspace import run_folder
from trainwright.workspace.run_record import DATASET, MODEL

RUNTIME = "causal-lm-evaluation"
FOLDER = "evaluation"
"""Folder of the run that holds what is evaluated and what came of it."""
RESULT, SUMMARY, CURVE = "result.json", "summary.md", "loss-curve.html"


def evaluate_export(
    cluster: Cluster,
    checkpoint_uri: str,
    digest: str,
    *,
    workspace: str,
    workspace_path: Path,
    owner: str,
    run_id: str,
    namespace: str,
    map_index: int = -1,
    was: Sequence[str] = (),
    runtime: str = RUNTIME,
    sample_row: int = 0,
    max_rows: int = 0,
    settings: dict[str, Any] | None = None,
    teller: Teller | None = None,
    on_signal: Leave | None = None,
) -> dict[str, Any]:
    """The evaluation of an export as a dict: `before`, `after`, `rows`, `held_out`, `sample`, `folder` (of the workspace), `summary`
    (Markdown) and `loss_curve` (HTML, empty without a logged loss).

    `workspace` is the volume as the job sees it (`pvc://...`), `workspace_path` as this process sees it; the export's manifest
    says which prepared dataset and model belong to it. `was` are owners that the step had before somebody cleared it.
    `settings` are those of EVALUATION_SETTINGS. An evaluation of the same export that is there already is returned.
    Raises ValueError, CheckpointError, StorageError, and what `run_step` raises.
    """
    short = digest.removeprefix("sha256:")[:12]
    if not re.fullmatch(r"[0-9a-f]{12}", short):  # it names a folder
        raise CheckpointError(f"{digest!r} is no digest of an export; expected sha256: and 64 hexadecimal digits")
    within = f"{FOLDER}/{short}"
    folder = workspace_path / run_folder(run_id, map_index) / within
    manifest = _restored(checkpoint_uri, digest, folder / "checkpoint")
    inputs = _inputs(manifest, checkpoint_uri)
    for kind in (DATASET, MODEL):  # to mount them on, as in the run's own folder
        (folder / kind).mkdir(exist_ok=True)
    arguments = ["--checkpoint", "/workspace/checkpoint", "--out", f"/workspace/{RESULT}", "--sample-row", str(sample_row)]
    if max_rows:
        arguments += ["--max-rows", str(max_rows)]
    request = TrainRequest.from_parameters(
        {**(settings or {}), **inputs, "runtime": runtime, "workspace": workspace, "args": arguments, "previous_jobs": "keep"}
    )
    identity = Identity(owner, run_id, f"evaluate-{short}", map_index, within)
    earlier = [replace(identity, owner=one) for one in was]
    run_step(cluster, request, identity, namespace, was=earlier, teller=teller, on_signal=on_signal)
    result = _read(folder / RESULT)
    about = {"run": run_id, "folder": identity.folder, "checkpoint_uri": checkpoint_uri, "checkpoint_digest": digest}
    return _summed_up({**result, **about, "dataset_digest": inputs["dataset_digest"]}, folder)


def _restored(uri: str, digest: str, target: Path) -> Manifest:
    if target.is_dir():
        return verify_export(uri, digest=digest)
    return restore_checkpoint(uri, target, digest=digest)


def _inputs(manifest: Manifest, uri: str) -> dict[str, str]:
    origin = manifest.metadata.get("origin")
    known = origin if isinstance(origin, dict) else {}
    inputs = {f"{kind}_digest": str(known.get(kind) or "") for kind in ("dataset", "model")}
    if missing := [kind for kind in ("dataset", "model") if not inputs[f"{kind}_digest"]]:
        raise CheckpointError(
            f"{uri}: its manifest does not say which {' and '.join(missing)} it comes from, so there is nothing to compare it "
            "with; export it from a run whose dataset and model were prepared"
        )
    return inputs


def _read(path: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"the evaluation job succeeded but left no result in {path}: {error}") from error
    return result


def _summed_up(result: dict[str, Any], folder: Path) -> dict[str, Any]:
    """With its summary and loss curve, which are left beside the result for whoever opens the folder."""
    history = training_state(folder / "checkpoint").get("log_history")
    before, after = result["before"]["loss"], result["after"]["loss"]
    try:
        curve = loss_curve_html(history if isinstance(history, list) else [], before, after)
    except ValueError:  # a training that logged no loss
        curve = ""
    texts = {SUMMARY: markdown_summary(result), CURVE: curve}
    for name, text in texts.items():
        if text:
            write_bytes(folder / name, text.encode())
    return {**result, "summary": texts[SUMMARY], "loss_curve": curve}
