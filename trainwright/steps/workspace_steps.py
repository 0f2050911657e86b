"""What the steps of a run do with files on the workspace, by name, so that it is done here or, by the same code, in a pod.

Arguments and results are JSON. An orchestrator's worker then needs neither the volume nor the room for a model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trainwright.checkpoints import ExportOptions, Metric
from trainwright.checkpoints.errors import DivergedCheckpoint, NoCheckpoint
from trainwright.initializers import DatasetOptions
from trainwright.steps import evaluation_files
from trainwright.steps.data_tools import data_uri, preprocess_run_data, pull_run_data
from trainwright.steps.export import export_run_checkpoint
from trainwright.steps.prepare import prepare_run_dataset, prepare_run_model
from trainwright.steps.retire import retire_folder
from trainwright.steps.trials import Trial, begin_trials, end_trials

Arguments = Mapping[str, Any]
log = logging.getLogger(__name__)


class WorkspaceSteps(Protocol):
    """Does a step on the workspace of a run, wherever that is mounted."""

    def __call__(self, step: str, arguments: Arguments) -> dict[str, Any]:
        """Return the result of a step of STEPS. Raises its errors, or those of the job that it runs in."""


@dataclass(frozen=True)
class HereSteps:
    """Steps in this process, which has the workspace at `workspace`."""

    workspace: Path

    def __call__(self, step: str, arguments: Arguments) -> dict[str, Any]:
        return STEPS[step](self.workspace, arguments)


def _initialize_dataset(workspace: Path, given: Arguments) -> dict[str, Any]:
    options = DatasetOptions.model_validate(given["options"])
    receipt = prepare_run_dataset(given["uri"], workspace, options, **given["run"])
    rows = {name: receipt.details[name] for name in ("train_rows", "test_rows")}
    return {"source": given["uri"], "revision": receipt.revision, "digest": receipt.digest, **rows}


def _initialize_model(workspace: Path, given: Arguments) -> dict[str, Any]:
    receipt = prepare_run_model(given["uri"], workspace, **given["run"])
    return {"source": given["uri"], "revision": receipt.revision, "digest": receipt.digest}


def _export_checkpoint(workspace: Path, given: Arguments) -> dict[str, Any]:
    options = ExportOptions(
        resumable=given["resumable"],
        supersede=given["supersede"],
        metric=Metric(given["best_metric"], given["greater_is_better"]),
    )
    which = {"trainjob": given["trainjob"], "folder": given.get("folder", ""), **given["run"]}
    exported = export_run_checkpoint(workspace, given["export_uri"], options=options, **which)
    manifest = exported.manifest
    facts = {"step": manifest.step, "bytes": manifest.size, "metrics": manifest.metrics}
    return {"uri": exported.uri, "digest": exported.digest, **facts}


def _export_beside(workspace: Path, given: Arguments) -> dict[str, Any]:
    """Empty as long as there is no complete checkpoint, or only one that has diverged; `look` only tells one look from the next."""
    try:
        return _export_checkpoint(workspace, given)
    except NoCheckpoint:
        return {}
    except DivergedCheckpoint as error:  # the step that waits for the training judges it, which may recover
        log.warning("event=checkpoint_not_exported reason=%r", str(error))
        return {}


def _pull_dvc_data(workspace: Path, given: Arguments) -> dict[str, Any]:
    pulled = pull_run_data(workspace, on_line=_log_line, **given["options"], **given["run"])
    found = {"digest": pulled.digest, "revision": pulled.revision, "md5": pulled.md5, "size": pulled.size}
    return {"data_uri": data_uri(pulled.folder), **found}


def _preprocess_dataset(workspace: Path, given: Arguments) -> dict[str, Any]:
    done = preprocess_run_data(workspace, given["uri"], on_line=_log_line, **given["options"], **given["run"])
    counts = {"rows_in": done.rows_in, "rows_out": done.rows_out, "dropped": done.dropped}
    return {"data_uri": data_uri(done.folder), "digest": done.digest, **counts}


def _begin_trials(workspace: Path, given: Arguments) -> dict[str, Any]:
    begin_trials(workspace, [Trial(index=index) for index in range(given["count"])], **given["run"])
    return {}


def _end_trials(workspace: Path, given: Arguments) -> dict[str, Any]:
    end_trials(workspace, given["indices"], run_id=given["run_id"])
    return {}


def _log_line(line: str) -> None:
    log.info("%s", line)


def _retire(workspace: Path, given: Arguments) -> dict[str, Any]:
    return {"deleted": retire_folder(workspace, **given)}


STEPS: dict[str, Callable[[Path, Arguments], dict[str, Any]]] = {
    "initialize-dataset": _initialize_dataset,
    "initialize-model": _initialize_model,
    "export-checkpoint": _export_checkpoint,
    "export-beside": _export_beside,
    "restore-for-evaluation": lambda workspace, given: evaluation_files.restore(workspace, **given),
    "collect-evaluation": lambda workspace, given: evaluation_files.collect(workspace, **given),
    "pull-dvc-data": _pull_dvc_data,
    "preprocess-dataset": _preprocess_dataset,
    "begin-trials": _begin_trials,
    "end-trials": _end_trials,
    "retire-run": _retire,
}
