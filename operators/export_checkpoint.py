"""Export the newest complete checkpoint of a run; its manifest is written last, when every stored byte is confirmed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator

from trainwright.operators.credentials import credentials
from trainwright.operators.errors import fail_fast
from trainwright.operators.task_identity import task_identity


class ExportCheckpointOperator(BaseOperator):
    """Copy the run's newest complete checkpoint to a store, confirm every stored byte, and write the manifest last.

    :param export_uri: folder for exports; each run has its own folder below it.
    :param trainjob: the TrainJob that wrote the checkpoint; a checkpoint of another one is rejected.
    :param run_id: id of the run, as in TrainJobOperator; defaults to the DAG run's id.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow.md.
    :param workspace_path: where the workspace is mounted in the worker.
    :param resumable: also export optimizer and random states.
    :param supersede: publish also if the run has another export of this step with other files.
    :param best_metric: logged metric that chooses the run's best export, which `best.json` names.
    :param greater_is_better: whether a greater `best_metric` is better.
    :return: uri, digest, step, bytes.
    """

    template_fields = (
        "export_uri",
        "trainjob",
        "workspace_path",
        "run_id",
        "store_conn_id",
        "resumable",
        "supersede",
        "best_metric",
        "greater_is_better",
    )

    def __init__(
        self,
        *,
        export_uri: str,
        trainjob: str = "",
        workspace_path: str = "/workspace",
        run_id: str = "",
        resumable: bool = True,
        supersede: bool = False,
        best_metric: str = "eval_loss",
        greater_is_better: bool = False,
        store_conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.export_uri, self.trainjob, self.workspace_path, self.resumable = export_uri, trainjob, workspace_path, resumable
        self.run_id, self.store_conn_id, self.supersede = run_id, store_conn_id, supersede
        self.best_metric, self.greater_is_better = best_metric, greater_is_better

    @fail_fast()
    def execute(self, context: Any) -> dict[str, Any]:
        from trainwright.checkpoints import ExportOptions, Metric
        from trainwright.operators.allowed_places import check_places
        from trainwright.steps.export import export_run_checkpoint

        check_places((self.store_conn_id,), export_uri=self.export_uri, workspace_path=self.workspace_path)
        identity = task_identity(context, self.run_id)
        metric = Metric(self.best_metric, self.greater_is_better)
        with credentials(self.store_conn_id, None):
            exported = export_run_checkpoint(
                Path(self.workspace_path),
                self.export_uri,
                run_id=identity.run,
                trainjob=self.trainjob,
                map_index=identity.map_index,
                options=ExportOptions(resumable=self.resumable, supersede=self.supersede, metric=metric),
            )
        return {
            "uri": exported.uri,
            "digest": exported.digest,
            "step": exported.manifest.step,
            "bytes": exported.manifest.size,
        }
