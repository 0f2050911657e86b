"""The files of an evaluation on the workspace: the export restored for it, and its result collected from it.

The local copy is compared with the export's manifest before and after the job, and restored again if it differs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwright.api.finite_json import finite_json
from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.formats.whole_files import training_state
from trainwright.checkpoints.manifest import LOSS_ON, Manifest
from trainwright.checkpoints.restore import folder_mismatch, restore_checkpoint, verify_export
from trainwright.checkpoints.training_history import LogHistory, logged_in
from trainwright.evaluation.figures import loss_name, loss_of, markdown_summary
from trainwright.evaluation.loss_curve import loss_curve_html
from trainwright.jobs.trainers.sft import ALL, ANSWERS
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.workspace.deletion import mark_deleted, remove_tree
from trainwright.workspace.layout import step_path
from trainwright.workspace.run_record import DATASET, FINDINGS, MODEL, checked_findings, finding_names

log = logging.getLogger(__name__)
FOLDER = "evaluation"
"""The subfolder of the run's folder for restored checkpoints and evaluation results."""
RESULT, SUMMARY, CURVE = "result.json", "summary.md", "loss-curve.html"
MEASURED_ON = ("rows", "rows_digest", "held_out", "trained_rows", "dataset_digest", "few_shot", "task_limit")
"""What figures depend on besides the model."""
BASE = "base"
"""Among the figures of an evaluation, those of the base model."""
_COPY = "checkpoint"
_MAX_RESULT_BYTES = 64 * 1024 * 1024


def short_digest(digest: str) -> str:
    """Return the part of an export's digest that names its evaluations. Raises CheckpointError for anything else."""
    short = digest.removeprefix("sha256:")[:12]
    if not re.fullmatch(r"[0-9a-f]{12}", short):  # it becomes a folder name
        raise CheckpointError(f"{digest!r} is not the digest of an export; expected sha256: and 64 hexadecimal digits")
    return short


def restore(workspace: Path, *, uri: str, digest: str, folder: str, dataset_digest: str) -> dict[str, str]:
    """Restore an export below `folder` of the workspace, or verify what is there. Returns `dataset_digest`, `model_digest`, `loss_on`.

    These are of the prepared inputs that the export's manifest names; `dataset_digest` is another dataset to evaluate on. `loss_on` is
    what the training learned of messages, empty if that is not recorded.
    Raises CheckpointError, StorageError, WorkspaceError (a link in place of a folder).
    """
    within = step_path(workspace, folder)
    manifest = _restore_or_verify(uri, digest, within / _COPY)
    origin = manifest.metadata.get("origin")
    known = {**(origin if isinstance(origin, dict) else {}), **({"dataset": dataset_digest} if dataset_digest else {})}
    inputs = {f"{kind}_digest": str(known.get(kind) or "") for kind in ("dataset", "model")}
    if missing := [kind for kind in ("dataset", "model") if not inputs[f"{kind}_digest"]]:
        raise CheckpointError(
            f"{uri}: the manifest does not record the {' and '.join(missing)}, so the checkpoint cannot be evaluated; "
            "export it from a run with a prepared dataset and model"
        )
    loss_on = manifest.metadata.get(LOSS_ON)
    inputs = {**inputs, LOSS_ON: loss_on if loss_on in (ANSWERS, ALL) else ""}
    for kind in (DATASET, MODEL):  # mount points, as in the run's own folder
        (within / kind).mkdir(exist_ok=True)
    return inputs


def collect(
    workspace: Path, *, uri: str, digest: str, folder: str, written: str, about: dict[str, Any], with_curve: bool
) -> dict[str, Any]:
    """Return the result that the job has written to the file `written`, with `about`, `summary` and (unless it is empty) `loss_curve`.

    Summary and loss curve are also written to files beside it. Raises CheckpointError, StorageError, WorkspaceError.
    """
    within = step_path(workspace, folder)
    manifest = open_export(uri, digest).manifest
    if mismatch := folder_mismatch(within / _COPY, manifest):
        raise CheckpointError(f"{within / _COPY} was changed while it was evaluated: {mismatch}; evaluate it again")
    result = _read(within / written)
    history = logged_in(training_state(within / _COPY)) or logged_in(manifest.metadata)
    origin = manifest.metadata.get("origin")
    if not isinstance(origin, dict) or about.get("dataset_digest") != origin.get("dataset"):
        result.pop("trained_rows", None)  # they were compared with rows that this model was not trained on
    findings = checked_findings(manifest.metadata.get(FINDINGS))
    whole = {**result, **about, **({FINDINGS: findings} if findings else {})}
    text = json.dumps(finite_json(whole).value, ensure_ascii=False, indent=2, allow_nan=False)
    _write_if_new(within / RESULT, text.encode() + b"\n")
    summarized = _summarize(whole, within, history)
    return summarized if with_curve else {**summarized, "loss_curve": ""}


def figures_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of an evaluation by which models are compared: flat, finite, and with what they were measured on."""
    after = {name: value for name, value in result["after"].items() if isinstance(value, int | float) and math.isfinite(value)}
    findings = finding_names(result.get(FINDINGS))
    base = {name: value for name, value in result["before"].items() if isinstance(value, int | float) and math.isfinite(value)}
    return {
        **after,
        **({BASE: base} if base else {}),
        **{name: result[name] for name in MEASURED_ON if name in result},
        **({FINDINGS: findings} if findings else {}),
    }


def _restore_or_verify(uri: str, digest: str, target: Path) -> Manifest:
    if target.is_symlink() or not target.is_dir():  # nothing was restored before
        return restore_checkpoint(uri, target, digest=digest)
    manifest = verify_export(uri, digest=digest)
    mismatch = folder_mismatch(target, manifest)
    if not mismatch:  # an earlier attempt has restored it
        return manifest
    log.warning("event=restored_checkpoint_differs path=%s reason=%r", target, mismatch)
    with disk_errors(target):
        remove_tree(mark_deleted(target))
    return restore_checkpoint(uri, target, digest=digest)


def _read(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(read_plain(path, _MAX_RESULT_BYTES, path.parent))
    except (OSError, UnsafeFile, ValueError, RecursionError) as error:
        raise CheckpointError(f"the evaluation job succeeded but wrote no valid result to {path}: {error}") from error
    match result:
        case {"before": dict() as before, "after": dict() as after} if _has_loss(before) and _has_loss(after):
            return dict(result)
        case _:
            raise CheckpointError(f"the evaluation job succeeded but its result in {path} has no losses before and after")


def _has_loss(figures: Mapping[str, Any]) -> bool:
    return isinstance(figures.get(loss_name(figures)), int | float)


def _write_if_new(path: Path, content: bytes) -> None:
    with contextlib.suppress(OSError, UnsafeFile):
        if read_plain(path, len(content), path.parent) == content:
            return
    write_bytes(path, content)


def _summarize(result: dict[str, Any], folder: Path, history: LogHistory) -> dict[str, Any]:
    """Add summary and loss curve to the result, and write them to files beside it."""
    before, after = loss_of(result["before"]), loss_of(result["after"])
    try:
        curve = loss_curve_html(history, before, after)
    except ValueError:  # no loss was logged
        curve = ""
    texts = {SUMMARY: markdown_summary(result), CURVE: curve}
    for name, text in texts.items():
        if text:
            write_bytes(folder / name, text.encode())
    return {**result, "summary": texts[SUMMARY], "loss_curve": curve}
