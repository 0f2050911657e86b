"""Evaluates an exported checkpoint: restores and verifies it, compares it with the base model in a job, and writes a summary.

What concerns files is done by steps on the workspace, so that this process need not have it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from trainwright.checkpoints.errors import FigureNotFinite
from trainwright.cluster.protocol import Cluster
from trainwright.jobs import EventPrinter, Identity, TrainRequest, run_step
from trainwright.jobs.state.submitter import NOBODY, Submitter
from trainwright.jobs.state.workflow import Workflow
from trainwright.jobs.submit.step_credentials import StepCredentials
from trainwright.jobs.wait.run import CancelHandler
from trainwright.steps.evaluation_files import CURVE, FOLDER, RESULT, SUMMARY, short_digest
from trainwright.steps.workspace_steps import WorkspaceSteps
from trainwright.workspace import run_folder

RUNTIME = "causal-lm-evaluation"
__all__ = ["CURVE", "FOLDER", "RESULT", "SUMMARY", "evaluate_export", "figures_of"]


def evaluate_export(
    cluster: Cluster,
    checkpoint_uri: str,
    digest: str,
    *,
    workspace: str,
    steps: WorkspaceSteps,
    owner: str,
    run_id: str,
    namespace: str,
    map_index: int = -1,
    runtime: str = RUNTIME,
    sample_row: int = 0,
    max_rows: int = 0,
    dataset_digest: str = "",
    tasks: Sequence[str] = (),
    few_shot: int = -1,
    task_limit: int = 0,
    settings: dict[str, Any] | None = None,
    submitter: Submitter = NOBODY,
    event_printer: EventPrinter | None = None,
    on_signal: CancelHandler | None = None,
    workflow: Workflow | None = None,
    credentials: StepCredentials | None = None,
    with_curve: bool = True,
) -> dict[str, Any]:
    """Evaluate an export. Returns `before`, `after`, `rows`, `held_out`, `sample`, `folder` (of the workspace), `summary`
    (Markdown) and `loss_curve` (HTML, empty without a logged loss, or `with_curve`; the workspace has it in any case).

    `workspace` is the volume for the job (`pvc://...`), `steps` do what concerns its files. The export's manifest
    names the prepared dataset and model; `dataset_digest` is another prepared dataset to evaluate on. `tasks`, `few_shot` and
    `task_limit` are those of lm-evaluation-harness, see `evaluation.harness`. `submitter` is the
    step's task, `workflow` that of its pipeline, `credentials` are for the job, `settings` are those of EVALUATION_SETTINGS. An
    existing evaluation of the same export with the same parameters is returned.
    The local copy is compared with the manifest before and after the job, and restored again if it differs. The job writes to a
    file named by what was asked, so that an earlier result is never taken for that of this evaluation.
    Raises ValueError, FigureNotFinite, CheckpointError, StorageError, WorkspaceError (a link in place of a folder), and the errors of
    `run_step`.
    """
    short = short_digest(digest)
    within = f"{FOLDER}/{short}"
    folder = f"{run_folder(run_id, map_index)}/{within}"
    place = {"uri": checkpoint_uri, "digest": digest, "folder": folder}
    inputs = steps("restore-for-evaluation", {**place, "dataset_digest": dataset_digest})
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
        | {"fail_on_divergence": False}
    )
    on_data = f"-{dataset_digest.removeprefix('sha256:')[:12]}" if dataset_digest else ""
    identity = Identity(owner, run_id, f"evaluate-{short}{on_data}", map_index, within, submitter)
    run_step(
        cluster,
        request,
        identity,
        namespace,
        event_printer=event_printer,
        on_signal=on_signal,
        workflow=workflow,
        credentials=credentials,
    )
    about = {"run": run_id, "folder": identity.folder, "checkpoint_uri": checkpoint_uri, "checkpoint_digest": digest}
    about["dataset_digest"] = inputs["dataset_digest"]
    result = steps("collect-evaluation", {**place, "written": written, "about": about, "with_curve": with_curve})
    _check_losses(checkpoint_uri, result)
    return result


def figures_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of an evaluation by which models are compared: flat, finite, and with the digest of the data."""
    after = {name: value for name, value in result["after"].items() if isinstance(value, int | float) and math.isfinite(value)}
    return {**after, "rows": result["rows"], "held_out": result["held_out"], "dataset_digest": result["dataset_digest"]}


def _check_losses(uri: str, result: Mapping[str, Any]) -> None:
    for when in ("before", "after"):
        loss = (result.get(when) or {}).get("loss")
        if isinstance(loss, float) and not math.isfinite(loss):
            raise FigureNotFinite(
                f"the evaluation of {uri} has the loss {loss} {when} training: the weights are not finite; evaluate another checkpoint"
            )


def _short_digest(asked: list[Any]) -> str:
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]
