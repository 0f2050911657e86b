"""Evaluate an exported checkpoint and its base model, in a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator

from trainwright.operators import cancellation
from trainwright.operators.credentials import credentials
from trainwright.operators.errors import fail_fast
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.literal_secrets import reject_literal_secrets
from trainwright.operators.settings import EVALUATION_SETTINGS
from trainwright.operators.task_identity import earlier_identities, task_identity


class EvaluateOperator(BaseOperator):
    """Restore an export, verify it, and measure loss before and after fine-tuning, on held-out rows if any, else on training rows.

    :param checkpoint_uri: URI of the exported checkpoint.
    :param checkpoint_digest: digest of its manifest.
    :param workspace: pvc://CLAIM or pvc://CLAIM/FOLDER.
    :param workspace_path: where the workspace is mounted in the worker.
    :param runtime: training runtime of the evaluation.
    :param sample_row: row (from 0) whose prompt is completed before and after fine-tuning.
    :param max_rows: evaluate only the first rows; 0 evaluates all held-out rows.
    :param retention: folders of earlier runs kept on the workspace: always, or keep=N of the finished runs.
    :param image: as in TrainJobOperator, like env, resources_per_node, labels, annotations, queue_name, priority_class, topology,
        node_selector, tolerations, affinity, queue_timeout_seconds, start_timeout_seconds, run_timeout_seconds, logs, log_bytes,
        on_cancel, waiter_lease_seconds and hub_secret.
    :param run_id: id of the run, as in TrainJobOperator; defaults to the DAG run's id.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow.md.
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
    on_cancel: str
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
        start_timeout_seconds: int | str = 21600,
        run_timeout_seconds: int | str = 604800,
        logs: str = "0",
        log_bytes: int | str = 16777216,
        on_cancel: str = "suspend",
        waiter_lease_seconds: int | str = 1800,
        hub_secret: str = "",
        run_id: str = "",
        namespace: str = "",
        conn_id: str | None = None,
        store_conn_id: str | None = None,
        **kwargs: Any,
    ):
        given = dict(locals())
        reject_literal_secrets({name: given[name] for name in EVALUATION_SETTINGS})
        super().__init__(**kwargs)
        for name in EVALUATION_SETTINGS:
            setattr(self, name, given[name])
        self.checkpoint_uri, self.checkpoint_digest = checkpoint_uri, checkpoint_digest
        self.workspace, self.workspace_path, self.runtime = workspace, workspace_path, runtime
        self.sample_row, self.max_rows, self.retention = sample_row, max_rows, retention
        self.run_id, self.namespace, self.conn_id, self.store_conn_id = run_id, namespace, conn_id, store_conn_id

    @fail_fast()
    def execute(self, context: Any) -> dict[str, Any]:
        from trainwright.jobs import EventPrinter
        from trainwright.operators.allowed_places import check_places
        from trainwright.steps.evaluate import CURVE, evaluate_export
        from trainwright.steps.retire import retire_run
        from trainwright.workspace import parse_retention

        check_places(
            (self.conn_id, self.store_conn_id),
            checkpoint_uri=self.checkpoint_uri,
            workspace=self.workspace,
            workspace_path=self.workspace_path,
        )
        parse_retention(self.retention)  # fail on an invalid value before the evaluation
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
                event_printer=EventPrinter(lambda line: self.log.info("%s", line)),
                on_signal=cancellation.on_signal(context, self.on_cancel),
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
