"""Prepare a base model on the workspace, before any training job is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator


class InitializeModelOperator(BaseOperator):
    """Fetch a model, check that it is whole and has safetensors weights, and leave it on the workspace with a receipt.

    :param model_uri: hf://org/name, or file:///path to a folder that transformers loads.
    :param workspace_path: where the workspace is mounted in the worker.
    :return: source, revision, digest.
    """

    template_fields = ("model_uri", "workspace_path")

    def __init__(self, *, model_uri: str, workspace_path: str = "/workspace", **kwargs: Any):
        super().__init__(**kwargs)
        self.model_uri, self.workspace_path = model_uri, workspace_path

    def execute(self, context: Any) -> dict[str, Any]:
        from trainwright.initializers import initialize_model

        receipt = initialize_model(self.model_uri, Path(self.workspace_path) / "model")
        return {"source": self.model_uri, "revision": receipt.revision, "digest": receipt.digest}
