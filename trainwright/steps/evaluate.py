"""Evaluates an exported checkpoint: restores and verifies it, compares it with the base model in a job, and writes a summary."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwright.checkpoints import Manifest, restore_checkpoint, verify_export
from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.hf_trainer import training_state
from trainwright.checkpoints.verify import folder_mismatch
from trainwright.cluster.protocol import Cluster
from trainwright.evaluation.loss_curve import loss_curve_html
from trainwright.evaluation.summary import markdown_summary
from trainwright.jobs import EventPrinter, Identity, TrainRequest, run_step
from trainwright.jobs.state.workflow import Workflow
from trainwright.jobs.wait.run import CancelHandler
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.workspace import run_folder
from trainwright.workspace.deletion import mark_deleted, remove_tree
from trainwright.workspace.layout import step_path
from trainwright.workspace.run_record import DATASET, MODEL

log = logging.getLogger(__name__)
RUNTIME = "causal-lm-evaluation"
FOLDER = "evaluation"
"""The subfolder of the run's folder for restored checkpoints and evaluation results."""
RESULT, SUMMARY, CURVE = "result.json", "summary.md", "loss-curve.html"
_MAX_RESULT_BYTES = 64 * 1024 * 1024


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
    dataset_digest: str = "",
    tasks: Sequence[str] = (),
    few_shot: int = -1,
    task_limit: int = 0,
    settings: dict[str, Any] | None = None,
    event_printer: EventPrinter | None = None,
    on_signal: CancelHandler | None = None,
    workflow: Workflow | None = None,
) -> dict[str, Any]:
    """Evaluate an export. Returns `before`, `after`, `rows`, `held_out`, `sample`, `folder` (of the workspace), `summary`
    (Markdown) and `loss_curve` (HTML, empty without a logged loss).

    `workspace` is the volume for the job (`pvc://...`), `workspace_path` its mount path in this process. The export's manifest
    names the prepared dataset and model; `dataset_digest` is another prepared dataset to evaluate on. `tasks`, `few_shot` and
    `task_limit` are those of lm-evaluation-harness, see `evaluation.harness`. `was` are the owners of
    the step before it was cleared, `workflow` is that of its pipeline. `settings` are those of EVALUATION_SETTINGS. An existing
    evaluation of the same export with the same parameters is returned.
    The local copy is compared with the manifest before and after the job, and restored again if it differs. The job writes to a
    file named by what was asked, so that an earlier result is never taken for that of this evaluation.
    Raises ValueError, CheckpointError, StorageError, WorkspaceError (a link in place of a folder), and the errors of `run_step`.
    """
    short = digest.removeprefix("sha256:")[:12]
    if not re.fullmatch(r"[0-9a-f]{12}", short):  # it becomes a folder name
        raise CheckpointError(f"{digest!r} is not the digest of an export; expected sha256: and 64 hexadecimal digits")
    within = f"{FOLDER}/{short}"
    folder = step_path(workspace_path, f"{run_folder(run_id, map_index)}/{within}")
    manifest = _restore_or_verify(checkpoint_uri, digest, folder / "checkpoint")
    inputs = _inputs(manifest, checkpoint_uri, dataset_digest)
    for kind in (DATASET, MODEL):  # mount points, as in the run's own folder
        (folder / kind).mkdir(exist_ok=True)
    harness = [*sorted({*tasks}), few_shot, task_limit] if tasks else []
    asked = [digest, inputs, runtime, sample_row, max_rows, settings or {}, owner, run_id, map_index, *harness]
    written = f".result-{_short_digest(asked)}.json"
    arguments = ["--checkpoint", "/workspace/checkpoint", "--out", f"/workspace/{written}", "--sample-row", str(sample_row)]
    if max_rows:
        arguments += ["--max-rows", str(max_rows)]
    if tasks:
        arguments += [word for task in sorted({*tasks}) for word in ("--task", task)]
        arguments += ["--few-shot", str(few_shot), "--task-limit", str(task_limit)]
    request = TrainRequest.from_parameters(
        {**(settings or {}), **inputs, "runtime": runtime, "workspace": workspace, "args": arguments, "previous_jobs": "keep"}
    )
    on_data = f"-{dataset_digest.removeprefix('sha256:')[:12]}" if dataset_digest else ""
    identity = Identity(owner, run_id, f"evaluate-{short}{on_data}", map_index, within)
    earlier = [replace(identity, owner=one) for one in was]
    run_step(
        cluster,
        request,
        identity,
        namespace,
        previous_identities=earlier,
        event_printer=event_printer,
        on_signal=on_signal,
        workflow=workflow,
    )
    if mismatch := folder_mismatch(folder / "checkpoint", manifest):
        raise CheckpointError(f"{folder / 'checkpoint'} was changed while it was evaluated: {mismatch}; evaluate it again")
    result = _read(folder / written)
    _write_if_new(folder / RESULT, json.dumps(result, ensure_ascii=False, indent=2).encode() + b"\n")
    about = {"run": run_id, "folder": identity.folder, "checkpoint_uri": checkpoint_uri, "checkpoint_digest": digest}
    return _summarize({**result, **about, "dataset_digest": inputs["dataset_digest"]}, folder)


def _restore_or_verify(uri: str, digest: str, target: Path) -> Manifest:
    if target.is_symlink() or not target.is_dir():
        return restore_checkpoint(uri, target, digest=digest)
    manifest = verify_export(uri, digest=digest)
    mismatch = folder_mismatch(target, manifest)
    if not mismatch:
        return manifest
    log.warning("event=restored_checkpoint_differs path=%s reason=%r", target, mismatch)
    with disk_errors(target):
        remove_tree(mark_deleted(target))
    return restore_checkpoint(uri, target, digest=digest)


def figures_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of an evaluation by which models are compared: flat, and with the digest of the data."""
    after = {name: value for name, value in result["after"].items() if isinstance(value, int | float)}
    return {**after, "rows": result["rows"], "held_out": result["held_out"], "dataset_digest": result["dataset_digest"]}


def _short_digest(asked: list[Any]) -> str:
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]


def _inputs(manifest: Manifest, uri: str, dataset_digest: str) -> dict[str, str]:
    origin = manifest.metadata.get("origin")
    known = {**(origin if isinstance(origin, dict) else {}), **({"dataset": dataset_digest} if dataset_digest else {})}
    inputs = {f"{kind}_digest": str(known.get(kind) or "") for kind in ("dataset", "model")}
    if missing := [kind for kind in ("dataset", "model") if not inputs[f"{kind}_digest"]]:
        raise CheckpointError(
            f"{uri}: the manifest does not record the {' and '.join(missing)}, so the checkpoint cannot be evaluated; "
            "export it from a run with a prepared dataset and model"
        )
    return inputs


def _read(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(read_plain(path, _MAX_RESULT_BYTES, path.parent))
    except (OSError, UnsafeFile, ValueError, RecursionError) as error:
        raise CheckpointError(f"the evaluation job succeeded but wrote no valid result to {path}: {error}") from error
    match result:
        case {"before": {"loss": int() | float()}, "after": {"loss": int() | float()}}:
            return dict(result)
        case _:
            raise CheckpointError(f"the evaluation job succeeded but its result in {path} has no losses before and after")


def _write_if_new(path: Path, content: bytes) -> None:
    with contextlib.suppress(OSError, UnsafeFile):
        if read_plain(path, len(content), path.parent) == content:
            return
    write_bytes(path, content)


def _summarize(result: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Add summary and loss curve to the result, and write them to files beside it."""
    history = training_state(folder / "checkpoint").get("log_history")
    before, after = result["before"]["loss"], result["after"]["loss"]
    try:
        curve = loss_curve_html(history if isinstance(history, list) else [], before, after)
    except ValueError:  # no loss was logged
        curve = ""
    texts = {SUMMARY: markdown_summary(result), CURVE: curve}
    for name, text in texts.items():
        if text:
            write_bytes(folder / name, text.encode())
    return {**result, "summary": texts[SUMMARY], "loss_curve": curve}
