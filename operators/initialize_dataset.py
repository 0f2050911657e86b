"""Prepare a dataset on the workspace, before any training job is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator


class InitializeDatasetOperator(BaseOperator):
    """Fetch a dataset, map its columns to what TRL reads, split it, and leave it on the workspace with a receipt.

    :param dataset_uri: hf://org/name, or file:///path to a file or a folder.
    :param workspace_path: where the workspace is mounted in the worker.
    :param layout: force a layout: alpaca, prompt-completion, messages or text.
    :param test_fraction: share of the rows that is held out, where the source has no split of its own.
    :param max_rows: take only so many rows; 0 takes all.
    :return: source, revision, digest, train_rows, test_rows.
    """

    template_fields = ("dataset_uri", "workspace_path", "layout")

    def __init__(
        self,
        *,
        dataset_uri: str,
        workspace_path: str = "/workspace",
        layout: str = "",
        test_fraction: float = 0.1,
        max_rows: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.dataset_uri, self.workspace_path, self.layout = dataset_uri, workspace_path, layout
        self.test_fraction, self.max_rows = test_fraction, max_rows

    def execute(self, context: Any) -> dict[str, Any]:
        from trainwright.initializers import DatasetOptions, initialize_dataset

        options = DatasetOptions(layout=self.layout, test_fraction=self.test_fraction, max_rows=self.max_rows)
        receipt = initialize_dataset(self.dataset_uri, Path(self.workspace_path) / "dataset", options)
        rows = {name: receipt.details[name] for name in ("train_rows", "test_rows")}
        return {"source": self.dataset_uri, "revision": receipt.revision, "digest": receipt.digest, **rows}
