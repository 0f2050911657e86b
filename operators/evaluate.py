"""Evaluate an exported checkpoint beside its base model, in a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator

from trainwright.operators.failing import retried_unless_in_vain
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.task_identity import task_identity


class EvaluateOperator(BaseOperator):
    """Copy the export back, verify it, and measure loss on the held-out rows before and after fine-tuning.

    :param checkpoint_uri: where the exported checkpoint lies; checkpoint_digest: digest of its manifest.
    :param workspace: pvc://CLAIM or pvc://CLAIM/FOLDER; workspace_path: where the worker sees it.
    :param sample_row: held-out row (from 0) whose prompt is completed before and after.
    :param max_rows: measure the first rows only; 0 measures all.
    :return: the evaluation: before, after, rows, sample.
    """

    template_fields = (
        "checkpoint_uri",
        "checkpoint_digest",
        "workspace",
        "workspace_path",
        "namespace",
        "run",
        "sample_row",
        "env",
    )

    def __init__(
        self,
        *,
        checkpoint_uri: str,
        checkpoint_digest: str,
        workspace: str,
        workspace_path: str = "/workspace",
        namespace: str = "",
        run: str = "",
        sample_row: int = 0,
        max_rows: int = 0,
        env: dict[str, str] | None = None,
        conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.checkpoint_uri, self.checkpoint_digest = checkpoint_uri, checkpoint_digest
        self.workspace, self.workspace_path, self.namespace, self.run = workspace, workspace_path, namespace, run
        self.sample_row, self.max_rows, self.env, self.conn_id = sample_row, max_rows, env or {}, conn_id

    @retried_unless_in_vain()
    def execute(self, context: Any) -> dict[str, Any]:
        from trainwright.evaluation.job import evaluate_export
        from trainwright.jobs import Live, Teller

        cluster = TrainwrightHook(self.conn_id).get_conn()
        identity = task_identity(context, self.run)
        return evaluate_export(
            cluster,
            self.checkpoint_uri,
            self.checkpoint_digest,
            workspace=self.workspace,
            workspace_path=Path(self.workspace_path),
            owner=f"{identity.owner}/{identity.step}",
            run=identity.run,
            namespace=self.namespace or cluster.default_namespace,
            sample_row=int(self.sample_row),
            max_rows=self.max_rows,
            env=self.env,
            tell=Teller(lambda line: self.log.info("%s", line)),
            logs=Live(),
        )
