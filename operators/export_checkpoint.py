"""Export the newest complete checkpoint of a run, verify the copy, and write its manifest last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator

from trainwright.operators.credentials import credentials
from trainwright.operators.errors import fail_fast
from trainwright.operators.task_identity import task_identity


class ExportCheckpointOperator(BaseOperator):
    """Copy the run's newest complete checkpoint to a store, verify the copy, and write its manifest last.

    :param export_uri: folder for exports; each run has its own folder below it.
    :param trainjob: the TrainJob that wrote the checkpoint; a checkpoint of another one is rejected.
    :param run_id: id of the run, as in TrainJobOperator; defaults to the DAG run's id.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow.md.
    :param workspace_path: where the workspace is mounted in the worker.
    :param resumable: also export optimizer and random states.
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

    @fail_fast()
    def execute(self, context: Any) -> dict[str, Any]:
        from trainwright.operators.allowed_places import check_places
        from trainwright.steps.export import export_run_checkpoint

        check_places((self.store_conn_id,), export_uri=self.export_uri, workspace_path=self.workspace_path)
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
