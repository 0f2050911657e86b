"""Evaluates an exported checkpoint: restores and verifies it, compares it with the base model in a job, and writes a summary.

What concerns files is done by steps on the workspace, so that this process need not have it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from trainwright.checkpoints.errors import FigureNotFinite
from trainwright.cluster.protocol import Cluster
from trainwright.evaluation.figures import loss_of
from trainwright.jobs import EventPrinter, Identity, Submission, TrainRequest, Waiting, run_step
from trainwright.jobs.state.identity import NOBODY, Submitter
from trainwright.jobs.state.waiters import Workflow
from trainwright.jobs.submit.submission import StepCredentials
from trainwright.jobs.wait.give_up import CancelHandler
from trainwright.steps.checkpoints.evaluation_files import CURVE, FOLDER, RESULT, SUMMARY, figures_of, short_digest
from trainwright.steps.ends.retire import retirement
from trainwright.steps.requests import CollectEvaluation, EvaluateExport, RestoreForEvaluation, StepRun, job_request
from trainwright.steps.workspace_steps import WorkspaceSteps
from trainwright.workspace import parse_retention, run_folder

__all__ = ["CURVE", "FOLDER", "RESULT", "SUMMARY", "evaluate_export", "figures_of"]


@dataclass(frozen=True)
class EvaluationJob:
    """Where the job of an evaluation runs, as whom, and how its step waits for it."""

    cluster: Cluster
    namespace: str
    workspace: str
    """The volume for the job (`pvc://...`)."""
    submitter: Submitter = NOBODY
    workflow: Workflow | None = None
    credentials: StepCredentials | None = None
    event_printer: EventPrinter | None = None
    on_signal: CancelHandler | None = None


def evaluate_export(
    job: EvaluationJob,
    request: EvaluateExport,
    run: StepRun,
    steps: WorkspaceSteps,
    *,
    trial_index: int = -1,
    with_curve: bool = True,
) -> dict[str, Any]:
    """Evaluate an export, and end its run in the workspace. Returns `before`, `after`, `rows`, `held_out`, `sample`, `folder` (of the
    workspace), `summary` (Markdown) and `loss_curve` (HTML, empty without a logged loss, or `with_curve`; the workspace has it in any
    case).

    `steps` do what concerns the files of the workspace. The export's manifest names the prepared dataset and model. `trial_index` is
    the trial of a sweep that the export is of. An existing evaluation of the same export with the same parameters is returned.
    The local copy is compared with the manifest before and after the job, and restored again if it differs. The job writes to a
    file named by what was asked, so that an earlier result is never taken for that of this evaluation.
    Raises ValueError, FigureNotFinite, CheckpointError, StorageError, WorkspaceError (a link in place of a folder), and the errors of
    `run_step`.
    """
    parse_retention(request.retention)  # fail on an invalid value before the evaluation
    index = trial_index if trial_index >= 0 else run.map_index
    short = short_digest(request.checkpoint_digest)
    within = f"{FOLDER}/{short}"
    folder = f"{run_folder(run.run_id, index)}/{within}"
    checkpoint = {"uri": request.checkpoint_uri, "digest": request.checkpoint_digest, "folder": folder}
    restored = run._replace(map_index=index)
    inputs = dict(steps(RestoreForEvaluation(**checkpoint, dataset_digest=request.dataset_digest), restored))
    loss_on = inputs.pop("loss_on", "")
    written = f".result-{_digest_of(request, restored, inputs)}.json"
    measuring = job_request(request).having(
        runtime=request.runtime,
        args=_arguments(request, written, loss_on),
        limits=request.limits.having(fail_on_divergence=False),
        ending=request.ending.having(previous_jobs="keep"),
    )
    training = TrainRequest.parse({**inputs, "workspace": job.workspace}, rest=measuring)
    on_data = f"-{request.dataset_digest.removeprefix('sha256:')[:12]}" if request.dataset_digest else ""
    identity = Identity(
        run.owner, run.run_id, f"evaluate-{short}{on_data}", index, within, submitter=job.submitter, may_resume=False
    )
    submission = Submission(job.cluster, training, identity, job.namespace, workflow=job.workflow, credentials=job.credentials)
    run_step(submission, Waiting.of(training, job.event_printer, on_signal=job.on_signal))
    about = {"run": run.run_id, "folder": identity.folder, "dataset_digest": inputs["dataset_digest"]}
    about |= {"checkpoint_uri": request.checkpoint_uri, "checkpoint_digest": request.checkpoint_digest}
    result = steps(CollectEvaluation(**checkpoint, written=written, about=about, with_curve=with_curve), restored)
    _check_losses(request.checkpoint_uri, result)
    ended = partial(retirement, job.cluster, run_id=run.run_id, namespace=job.namespace)
    steps(ended(retention=request.retention, map_index=index), restored)
    if trial_index >= 0:  # the folder that the preparation of the data has recorded is empty
        steps(ended(), run)
    return result


def _arguments(request: EvaluateExport, written: str, loss_on: str) -> list[str]:
    arguments = [
        "--checkpoint",
        "/workspace/checkpoint",
        "--out",
        f"/workspace/{written}",
        "--sample-row",
        str(request.sample_row),
    ]
    if loss_on:
        arguments += ["--loss-on", loss_on]
    if request.max_rows:
        arguments += ["--max-rows", str(request.max_rows)]
    if request.tasks:
        arguments += [word for task in sorted({*request.tasks}) for word in ("--task", task)]
        arguments += ["--few-shot", str(request.harness.few_shot), "--task-limit", str(request.harness.task_limit)]
    return arguments


def _digest_of(request: EvaluateExport, run: StepRun, inputs: Mapping[str, Any]) -> str:
    """Name what is asked: an answer to another question is not taken for this one's."""
    asked = request.given_values()
    for name in ("checkpoint_uri", "retention", *(() if request.tasks else ("tasks", "harness"))):
        asked.pop(name, None)
    asked |= {"tasks": sorted({*request.tasks})} if request.tasks else {}
    text = json.dumps([asked, list(run), dict(inputs)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _check_losses(uri: str, result: Mapping[str, Any]) -> None:
    for when in ("before", "after"):
        loss = loss_of(result[when])
        if not math.isfinite(loss):
            raise FigureNotFinite(
                f"the evaluation of {uri} has the loss {loss} {when} training: the weights are not finite; evaluate another checkpoint"
            )
