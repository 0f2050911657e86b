"""Evaluate an exported checkpoint beside its base model, in a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator

from trainwright.operators import leaving
from trainwright.operators.credentials import credentials
from trainwright.operators.failing import retried_unless_in_vain
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.settings import EVALUATION_SETTINGS
from trainwright.operators.task_identity import earlier_identities, task_identity


class EvaluateOperator(BaseOperator):
    """Copy the export back, verify it, and measure loss before and after fine-tuning: on held-out rows, else on training rows.

    :param checkpoint_uri: where the exported checkpoint lies; checkpoint_digest: digest of its manifest.
    :param workspace: pvc://CLAIM or pvc://CLAIM/FOLDER; workspace_path: where the worker sees it.
    :param runtime: training runtime that measures.
    :param sample_row: row (from 0) whose prompt is completed before and after.
    :param max_rows: measure the first rows only; 0 measures all held-out rows.
    :param retention: folders of earlier runs on the workspace that are kept: always, or keep=N of those that have ended.
    :param image: as in TrainJobOperator, like env, resources_per_node, labels, annotations, queue_name, priority_class, topology,
        node_selector, tolerations, affinity, queue_timeout_seconds, start_timeout_seconds, run_timeout_seconds, logs, log_bytes,
        on_cancel and hub_secret.
    :param run_id: names the run in place of the DAG run's id, as in TrainJobOperator.
    :param store_conn_id: a connection with credentials for an object store, see docs/airflow.md.
    :return: the evaluation: before, after, rows, held_out, sample, summary (Markdown), loss_curve (path on the workspace).
    """

    template_fields = (
        "checkpoint_uri",
        "checkpoint_digest",
        "workspace",
        "workspace_path",
        "runtime",
        "sample_row",
        "max_rows",
        "retention",
        "namespace",
        "run_id",
        "conn_id",
        "store_conn_id",
        *EVALUATION_SETTINGS,
    )
    template_fields_renderers = {"env": "json"}

    def __init__(
        self,
        *,
        checkpoint_uri: str,
        checkpoint_digest: str,
        workspace: str,
        workspace_path: str = "/workspace",
        runtime: str = "causal-lm-evaluation",
        sample_row: int | str = 0,
        max_rows: int | str = 0,
        retention: str = "always",
        image: str = "",
        env: dict[str, Any] | str | None = None,
        resources_per_node: dict[str, Any] | str | None = None,
        labels: dict[str, Any] | str | None = None,
        annotations: dict[str, Any] | str | None = None,
        queue_name: str = "",
        priority_class: str = "",
        topology: str = "",
        node_selector: dict[str, Any] | str | None = None,
        tolerations: list[Any] | str | None = None,
        affinity: dict[str, Any] | str | None = None,
        queue_timeout_seconds: int | str | None = None,
        start_timeout_seconds: int | str | None = None,
        run_timeout_seconds: int | str | None = None,
        logs: str = "0",
        log_bytes: int | str = 16777216,
        on_cancel: str = "suspend",
        hub_secret: str = "",
        run_id: str = "",
        namespace: str = "",
        conn_id: str | None = None,
        store_conn_id: str | None = None,
        **kwargs: Any,
    ):
        given = dict(locals())
        super().__init__(**kwargs)
        for name in EVALUATION_SETTINGS:
            setattr(self, name, given[name])
        self.checkpoint_uri, self.checkpoint_digest = checkpoint_uri, checkpoint_digest
        self.workspace, self.workspace_path, self.runtime = workspace, workspace_path, runtime
        self.sample_row, self.max_rows, self.retention = sample_row, max_rows, retention
        self.run_id, self.namespace, self.conn_id, self.store_conn_id = run_id, namespace, conn_id, store_conn_id

    @retried_unless_in_vain()
    def execute(self, context: Any) -> dict[str, Any]:
        from trainwright.jobs import Teller
        from trainwright.steps.evaluate import CURVE, evaluate_export
        from trainwright.steps.retire import retire_run
        from trainwright.workspace import parse_retention

        parse_retention(self.retention)  # before anything is measured
        cluster = TrainwrightHook(self.conn_id).get_conn()
        identity, namespace = task_identity(context, self.run_id), self.namespace or cluster.default_namespace
        workspace = Path(self.workspace_path)
        settings = {name: getattr(self, name) for name in EVALUATION_SETTINGS}
        with credentials(self.store_conn_id, None):
            result = evaluate_export(
                cluster,
                self.checkpoint_uri,
                self.checkpoint_digest,
                workspace=self.workspace,
                workspace_path=workspace,
                owner=f"{identity.owner}/{identity.step}",
                was=[f"{earlier.owner}/{earlier.step}" for earlier in earlier_identities(identity)],
                run_id=identity.run,
                map_index=identity.map_index,
                namespace=namespace,
                runtime=self.runtime,
                sample_row=int(self.sample_row),
                max_rows=int(self.max_rows),
                settings={name: value for name, value in settings.items() if value is not None},
                teller=Teller(lambda line: self.log.info("%s", line)),
                on_signal=leaving.on_signal(context, self.on_cancel),
            )
        retire_run(
            cluster,
            workspace,
            run_id=identity.run,
            map_index=identity.map_index,
            namespace=namespace,
            retention=self.retention,
        )
        return {**result, "loss_curve": str(workspace / result["folder"] / CURVE) if result["loss_curve"] else ""}
