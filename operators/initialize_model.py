"""Prepare a base model in the workspace, before training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator

from trainwright.operators.credentials import credentials
from trainwright.operators.errors import fail_fast
from trainwright.operators.task_identity import task_identity


class InitializeModelOperator(BaseOperator):
    """Fetch a model, check that it is complete and has safetensors weights, and store it in the workspace by its digest.

    :param model_uri: hf://, s3://, gs://, az://, pvc:// or file:///path to a folder that transformers can load; see docs/sources.md.
    :param workspace_path: where the workspace is mounted in the worker.
    :param run_id: id of the run; defaults to the DAG run's id. The run's record in the workspace lists the model as used.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow.md.
    :param hub_conn_id: connection with the token of the hub.
    :return: source, revision, digest.
    """

    template_fields = ("model_uri", "workspace_path", "run_id", "store_conn_id", "hub_conn_id")

    def __init__(
        self,
        *,
        model_uri: str,
        workspace_path: str = "/workspace",
        run_id: str = "",
        store_conn_id: str | None = None,
        hub_conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.model_uri, self.workspace_path, self.run_id = model_uri, workspace_path, run_id
        self.store_conn_id, self.hub_conn_id = store_conn_id, hub_conn_id

    @fail_fast()
    def execute(self, context: Any) -> dict[str, Any]:
        from trainwright.operators.allowed_places import check_places
        from trainwright.steps.prepare import prepare_run_model

        check_places((self.store_conn_id, self.hub_conn_id), model_uri=self.model_uri, workspace_path=self.workspace_path)
        identity = task_identity(context, self.run_id)
        with credentials(self.store_conn_id, self.hub_conn_id):
            receipt = prepare_run_model(
                self.model_uri,
                Path(self.workspace_path),
                owner=identity.owner,
                run_id=identity.run,
                map_index=identity.map_index,
            )
        return {"source": self.model_uri, "revision": receipt.revision, "digest": receipt.digest}
