"""Export the newest whole checkpoint of a training job, verified, with a manifest written last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator

from trainwright.operators.credentials import credentials
from trainwright.operators.failing import retried_unless_in_vain
from trainwright.operators.task_identity import task_identity


class ExportCheckpointOperator(BaseOperator):
    """Copy the run's newest whole checkpoint to a store, verify what arrived, and write its manifest last.

    :param export_uri: the folder that holds exports; the run gets a folder of its own below it.
    :param trainjob: the TrainJob that made it; a checkpoint of another one is refused.
    :param run_id: names the run in place of the DAG run's id, as in TrainJobOperator.
    :param store_conn_id: a connection with credentials for an object store, see docs/airflow.md.
    :param workspace_path: where the workspace is mounted in the worker.
    :param resumable: take optimizer and random states along.
    :return: uri, digest, step, bytes.
    """

    template_fields = ("export_uri", "trainjob", "workspace_path", "run_id", "store_conn_id", "resumable")

    def __init__(
        self,
        *,
        export_uri: str,
        trainjob: str = "",
        workspace_path: str = "/workspace",
        run_id: str = "",
        resumable: bool = True,
        store_conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.export_uri, self.trainjob, self.workspace_path, self.resumable = export_uri, trainjob, workspace_path, resumable
        self.run_id, self.store_conn_id = run_id, store_conn_id

    @retried_unless_in_vain()
    def execute(self, context: Any) -> dict[str, Any]:
        from trainwright.steps.export import export_run_checkpoint

        identity = task_identity(context, self.run_id)
        with credentials(self.store_conn_id, None):
            exported = export_run_checkpoint(
                Path(self.workspace_path),
                self.export_uri,
                run_id=identity.run,
                trainjob=self.trainjob,
                map_index=identity.map_index,
                resumable=self.resumable,
            )
        return {
            "uri": exported.uri,
            "digest": exported.digest,
            "step": exported.manifest.step,
            "bytes": exported.manifest.size,
        }
