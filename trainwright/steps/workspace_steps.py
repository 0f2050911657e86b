"""What the steps of a run do with files on the workspace, by name, so that it is done here or, by the same code, in a pod.

Arguments and results are JSON. An orchestrator's worker then needs neither the volume nor the room for a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trainwright.checkpoints import ExportOptions, Metric
from trainwright.checkpoints.errors import NoCheckpoint
from trainwright.initializers import DatasetOptions
from trainwright.steps import evaluation_files
from trainwright.steps.export import export_run_checkpoint
from trainwright.steps.prepare import prepare_run_dataset, prepare_run_model
from trainwright.steps.retire import retire_folder

Arguments = Mapping[str, Any]


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
    exported = export_run_checkpoint(workspace, given["export_uri"], trainjob=given["trainjob"], options=options, **given["run"])
    manifest = exported.manifest
    return {"uri": exported.uri, "digest": exported.digest, "step": manifest.step, "bytes": manifest.size}


def _export_beside(workspace: Path, given: Arguments) -> dict[str, Any]:
    """Empty as long as there is no complete checkpoint; `look` only tells one look from the next."""
    try:
        return _export_checkpoint(workspace, given)
    except NoCheckpoint:
        return {}


def _retire(workspace: Path, given: Arguments) -> dict[str, Any]:
    return {"deleted": retire_folder(workspace, **given)}


STEPS: dict[str, Callable[[Path, Arguments], dict[str, Any]]] = {
    "initialize-dataset": _initialize_dataset,
    "initialize-model": _initialize_model,
    "export-checkpoint": _export_checkpoint,
    "export-beside": _export_beside,
    "restore-for-evaluation": lambda workspace, given: evaluation_files.restore(workspace, **given),
    "collect-evaluation": lambda workspace, given: evaluation_files.collect(workspace, **given),
    "retire-run": _retire,
}
