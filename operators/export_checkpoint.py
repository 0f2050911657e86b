"""Export the newest whole checkpoint of a training job, verified, with a manifest written last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator


class ExportCheckpointOperator(BaseOperator):
    """Copy the newest whole checkpoint to a store, verify what arrived, and write its manifest last.

    :param export_uri: the folder that holds exports; the checkpoint gets a folder of its own below it.
    :param trainjob: name of the TrainJob that made it; recorded in the manifest.
    :param workspace_path: where the workspace is mounted in the worker.
    :param resumable: take optimizer and random states along.
    :return: uri, digest, step, bytes.
    """

    template_fields = ("export_uri", "trainjob", "workspace_path")

    def __init__(
        self, *, export_uri: str, trainjob: str = "", workspace_path: str = "/workspace", resumable: bool = True, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.export_uri, self.trainjob, self.workspace_path, self.resumable = export_uri, trainjob, workspace_path, resumable

    def execute(self, context: Any) -> dict[str, Any]:
        from trainwright.checkpoints import export_checkpoint, verify_export
        from trainwright.jobs.sft import CHECKPOINTS

        source = f"{context['ti'].run_id}/{self.trainjob}"
        folder = Path(self.workspace_path) / CHECKPOINTS
        exported = export_checkpoint(folder, self.export_uri, source=source, resumable=self.resumable)
        verify_export(exported.uri, digest=exported.digest)
        return {
            "uri": exported.uri,
            "digest": exported.digest,
            "step": exported.manifest.step,
            "bytes": exported.manifest.size,
        }
