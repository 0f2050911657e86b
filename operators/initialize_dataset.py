"""Prepare a dataset in the workspace, before training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator

from trainwright.operators.credentials import credentials
from trainwright.operators.errors import fail_fast
from trainwright.operators.task_identity import task_identity


class InitializeDatasetOperator(BaseOperator):
    """Fetch a dataset, map its columns to a layout that TRL reads, split it, and store it in the workspace by its digest.

    :param dataset_uri: hf://, s3://, gs://, az://, https://, pvc:// or file:///path to a file or a folder; see docs/sources.md.
    :param workspace_path: where the workspace is mounted in the worker.
    :param layout: layout of the source: alpaca, prompt-completion, messages, text ...; empty detects it from the columns.
    :param test_fraction: fraction of the rows to hold out, if the source has no split.
    :param max_rows: maximum number of rows; 0 takes all.
    :param columns: column of the source for each column to read, as ``{"prompt": "frage", "completion": "antwort"}``, or its JSON.
    :param subset: subset of the dataset, by its name on the hub or its folder; ``*`` takes all files; empty takes the default or
        only one.
    :param split: split to train on; empty takes ``train``.
    :param run_id: id of the run; defaults to the DAG run's id. The run's record in the workspace lists the dataset as used.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow.md.
    :param hub_conn_id: connection with the token of the hub.
    :return: source, revision, digest, train_rows, test_rows.
    """

    template_fields = (
        "dataset_uri",
        "workspace_path",
        "layout",
        "test_fraction",
        "max_rows",
        "columns",
        "subset",
        "split",
        "run_id",
        "store_conn_id",
        "hub_conn_id",
    )

    def __init__(
        self,
        *,
        dataset_uri: str,
        workspace_path: str = "/workspace",
        layout: str = "",
        test_fraction: float | str = 0.1,
        max_rows: int | str = 0,
        columns: dict[str, str] | str | None = None,
        subset: str = "",
        split: str = "",
        run_id: str = "",
        store_conn_id: str | None = None,
        hub_conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.dataset_uri, self.workspace_path, self.layout = dataset_uri, workspace_path, layout
        self.test_fraction, self.max_rows, self.run_id = test_fraction, max_rows, run_id
        self.columns, self.subset, self.split = columns, subset, split
        self.store_conn_id, self.hub_conn_id = store_conn_id, hub_conn_id

    @fail_fast()
    def execute(self, context: Any) -> dict[str, Any]:
        from trainwright.initializers import DatasetOptions
        from trainwright.operators.allowed_places import check_places
        from trainwright.steps.prepare import prepare_run_dataset

        check_places((self.store_conn_id, self.hub_conn_id), dataset_uri=self.dataset_uri, workspace_path=self.workspace_path)
        identity = task_identity(context, self.run_id)
        options = DatasetOptions.model_validate(
            {
                "layout": self.layout,
                "test_fraction": float(self.test_fraction),
                "max_rows": int(self.max_rows),
                "columns": self.columns or {},
                "subset": self.subset,
                "split": self.split,
            }
        )
        with credentials(self.store_conn_id, self.hub_conn_id):
            receipt = prepare_run_dataset(
                self.dataset_uri,
                Path(self.workspace_path),
                options,
                owner=identity.owner,
                run_id=identity.run,
                map_index=identity.map_index,
            )
        rows = {name: receipt.details[name] for name in ("train_rows", "test_rows")}
        return {"source": self.dataset_uri, "revision": receipt.revision, "digest": receipt.digest, **rows}
