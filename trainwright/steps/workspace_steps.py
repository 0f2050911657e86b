"""What the steps of a run do with files on the workspace: here or, by the same code, in a pod.

Requests and results are JSON. An orchestrator's worker then needs neither the volume nor the room for a model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trainwright.checkpoints.errors import DivergedCheckpoint, NoCheckpoint
from trainwright.checkpoints.pointers import Metric
from trainwright.checkpoints.publish import ExportOptions
from trainwright.initializers import DatasetOptions
from trainwright.initializers.data_report.pages import html_page, markdown_page
from trainwright.initializers.report_options import ReportOptions
from trainwright.jobs.request.setting import names_of
from trainwright.steps.checkpoints import evaluation_files
from trainwright.steps.checkpoints.export import export_merged_model, export_run_checkpoint
from trainwright.steps.data.prepare import (
    data_uri,
    prepare_run_dataset,
    prepare_run_model,
    prepared_shape,
    preprocess_run_data,
    pull_run_data,
)
from trainwright.steps.ends.retire import retire_folder
from trainwright.steps.promotion.champion import read_champion_for, roll_back_once
from trainwright.steps.promotion.promote import promote
from trainwright.steps.requests import (
    BeginTrials,
    CollectEvaluation,
    EndTrials,
    ExportBeside,
    ExportCheckpoint,
    InitializeDataset,
    InitializeModel,
    PreprocessDataset,
    PromoteModel,
    PullDvcData,
    ReadChampion,
    RestoreForEvaluation,
    RetireFolder,
    RollBackOnce,
    StepRequest,
    StepRun,
)
from trainwright.steps.training.trials import Trial, begin_trials, end_trials
from trainwright.storage.objects.connection import waiting_as_a_step
from trainwright.workspace.layout import prepared_path

log = logging.getLogger(__name__)


class WorkspaceSteps(Protocol):
    """Does a step on the workspace of a run, wherever that is mounted."""

    def __call__(self, request: StepRequest, run: StepRun) -> dict[str, Any]:
        """Return the result of a step of STEPS. Raises its errors, or those of the job that it runs in."""


@dataclass(frozen=True)
class HereSteps:
    """Steps in this process, which has the workspace at `workspace`."""

    workspace: Path
    write_line: Callable[[str], None] | None = None
    """Gets lines about the progress; by default they are logged."""

    def __call__(self, request: StepRequest, run: StepRun) -> dict[str, Any]:
        return do_step(self.workspace, request, run, self.write_line or _log_line)


def do_step(
    workspace: Path, request: StepRequest, run: StepRun, write_line: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Do a step on the workspace at this path. Returns its result. Raises its errors."""
    with waiting_as_a_step():
        return _DO[type(request)](_Call(workspace, run, write_line or _log_line), request)


@dataclass(frozen=True)
class _Call:
    """Where and for which run a step is done, and what gets lines about its progress."""

    workspace: Path
    run: StepRun
    write_line: Callable[[str], None]


def _initialize_dataset(call: _Call, request: InitializeDataset) -> dict[str, Any]:
    options = DatasetOptions.model_validate(request.by_name(*(names_of(InitializeDataset) & DatasetOptions.model_fields.keys())))
    of_report = ReportOptions.model_validate(request.by_name(*ReportOptions.model_fields))
    about = {"trainer": request.trainer, **call.run._asdict()}
    receipt, report = prepare_run_dataset(request.dataset_uri, call.workspace, options, of_report, **about)
    rows = {name: int(receipt.details[name]) for name in ("train_rows", "test_rows")}
    pages = {"figures": report.as_details(), "report": markdown_page(report), "report_page": html_page(report)}
    return {"source": request.dataset_uri, "revision": receipt.revision, "digest": receipt.digest, **rows, **pages}


def _initialize_model(call: _Call, request: InitializeModel) -> dict[str, Any]:
    receipt = prepare_run_model(request.model_uri, call.workspace, **call.run._asdict())
    shape = prepared_shape(prepared_path(call.workspace, "model", receipt.digest))
    return {"source": request.model_uri, "revision": receipt.revision, "digest": receipt.digest, "shape": shape}


def _export_checkpoint(call: _Call, request: ExportCheckpoint) -> dict[str, Any]:
    options = ExportOptions(
        resumable=request.resumable,
        which=request.which,
        supersede=request.supersede,
        metric=Metric(request.best_metric, request.greater_is_better),
    )
    exported = export_run_checkpoint(
        call.workspace,
        request.export_uri,
        options=options,
        trainjob=request.trainjob,
        folder=request.folder,
        usage=request.usage,
        write_progress=call.write_line,
        **call.run._asdict(),
    )
    manifest = exported.manifest
    facts = {"step": manifest.step, "bytes": manifest.size, "metrics": manifest.metrics}
    merged = export_merged_model(call.workspace, exported, call.run, request.folder) if request.merge_adapter else None
    named = {"merged_uri": merged.uri, "merged_digest": merged.digest} if merged is not None else {}
    return {"uri": exported.uri, "digest": exported.digest, **facts, **named}


def _export_beside(call: _Call, request: ExportBeside) -> dict[str, Any]:
    """Empty as long as there is no complete checkpoint, or only one that has diverged."""
    # After a lost volume, training resumes from the last checkpoint. The one at the end is selected, and merged, as asked.
    beside = request.having(merge_adapter=False, which="last")
    try:
        return _export_checkpoint(call, beside)
    except NoCheckpoint:  # the training has not saved one yet
        return {}
    except DivergedCheckpoint as error:  # the step that waits for the training judges it, which may recover
        log.warning("event=checkpoint_not_exported reason=%r", str(error))
        return {}


def _pull_dvc_data(call: _Call, request: PullDvcData) -> dict[str, Any]:
    pulled = pull_run_data(call.workspace, on_line=call.write_line, **request.by_name(), **call.run._asdict())
    found = {"digest": pulled.digest, "revision": pulled.revision, "md5": pulled.md5, "size": pulled.size}
    return {"data_uri": data_uri(pulled.folder), "source": pulled.receipt.source, **found}


def _preprocess_dataset(call: _Call, request: PreprocessDataset) -> dict[str, Any]:
    options = request.by_name(*names_of(PreprocessDataset) - {"data_uri"})
    done = preprocess_run_data(call.workspace, request.data_uri, on_line=call.write_line, **options, **call.run._asdict())
    counts = {"rows_in": done.rows_in, "rows_out": done.rows_out, "dropped": done.dropped}
    return {"data_uri": data_uri(done.folder), "digest": done.digest, **counts}


def _begin_trials(call: _Call, request: BeginTrials) -> dict[str, Any]:
    about = {"owner": call.run.owner, "run_id": call.run.run_id}
    trials = [Trial(index=index) for index in range(request.count)]
    begin_trials(call.workspace, trials, dataset=request.dataset_digest, model=request.model_digest, **about)
    return {}


def _end_trials(call: _Call, request: EndTrials) -> dict[str, Any]:
    end_trials(call.workspace, request.indices, run_id=call.run.run_id)
    return {}


def _promote_model(_call: _Call, request: PromoteModel) -> dict[str, Any]:
    verdict = promote(request)
    named = {"champion_uri": verdict.champion, "previous_uri": verdict.previous}
    return {"promoted": verdict.promoted, "reason": verdict.reason, **named}


def _log_line(line: str) -> None:
    log.info("%s", line)


_DO: dict[type[StepRequest], Callable[[_Call, Any], dict[str, Any]]] = {
    InitializeDataset: _initialize_dataset,
    InitializeModel: _initialize_model,
    ExportCheckpoint: _export_checkpoint,
    ExportBeside: _export_beside,
    RestoreForEvaluation: lambda call, request: {**evaluation_files.restore(call.workspace, **request.by_name())},
    CollectEvaluation: lambda call, request: evaluation_files.collect(call.workspace, **request.by_name()),
    PullDvcData: _pull_dvc_data,
    PreprocessDataset: _preprocess_dataset,
    BeginTrials: _begin_trials,
    EndTrials: _end_trials,
    RetireFolder: lambda call, request: {"deleted": retire_folder(call.workspace, **request.by_name())},
    ReadChampion: lambda _call, request: read_champion_for(request).as_dict(),
    PromoteModel: _promote_model,
    RollBackOnce: lambda _call, request: {"uri": roll_back_once(**request.by_name()).current.uri},
}
STEPS: dict[str, type[StepRequest]] = {request.step_name(): request for request in _DO}
"""The requests of all steps on a workspace, by the names of their steps."""
