"""Prepare a dataset in the workspace, before training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.operators.errors import fail_fast
from trainwright.operators.workspace_operator import WorkspaceOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class InitializeDatasetOperator(WorkspaceOperator):
    """Fetch a dataset, map its columns to a layout that TRL reads, split it, and store it in the workspace by its digest.

    :param dataset_uri: hf://, s3://, gs://, az://, https://, pvc:// or file:///path to a file or a folder; see docs/sources.md.
    :param layout: layout of the source: alpaca, prompt-completion, messages, text ...; empty detects it from the columns.
    :param test_fraction: fraction of the rows to hold out, if the source has no split.
    :param max_rows: maximum number of rows; 0 takes all.
    :param columns: column of the source for each column to read, as ``{"prompt": "frage", "completion": "antwort"}``, or its JSON.
    :param subset: subset of the dataset, by its name on the hub or its folder; ``*`` takes all files; empty takes the default or
        only one.
    :param split: split to train on; empty takes ``train``.
    :param workspace: claim with the workspace, pvc://CLAIM[/FOLDER], which pods mount if the worker does not.
    :param workspace_path: where the worker mounts the workspace; empty if it does not.
    :param runs_on: worker, cluster (in a pod that mounts the claim, so that the worker needs neither the volume nor the room), or
        auto: the worker if workspace_path is set, else the cluster. Without both it is the worker, at /workspace.
    :param job: settings of the pods on the cluster, as in TrainJobOperator: runtime (default: workspace-step), image, env,
        resources_per_node, node_selector, tolerations, queue_name, run_timeout_seconds, on_cancel ...
    :param run_id: id of the run, as in TrainJobOperator; defaults to DAG/RUN_ID of the DAG run.
    :param namespace: namespace of these pods; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes`; None uses the environment.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow/credentials.md.
    :param hub_conn_id: connection with the token of the hub.
    :return: source, revision, digest, train_rows, test_rows.
    """

    template_fields = (
        "dataset_uri",
        "layout",
        "test_fraction",
        "max_rows",
        "columns",
        "subset",
        "split",
        *WorkspaceOperator.template_fields,
    )

    def __init__(
        self,
        *,
        dataset_uri: str,
        layout: str = "",
        test_fraction: float | str = 0.1,
        max_rows: int | str = 0,
        columns: dict[str, str] | str | None = None,
        subset: str = "",
        split: str = "",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.dataset_uri, self.layout, self.test_fraction, self.max_rows = dataset_uri, layout, test_fraction, max_rows
        self.columns, self.subset, self.split = columns, subset, split

    @fail_fast()
    def execute(self, context: Context) -> Any:
        self.check_places(dataset_uri=self.dataset_uri)
        options = {
            "layout": self.layout,
            "test_fraction": float(self.test_fraction),
            "max_rows": int(self.max_rows),
            "columns": self.columns or {},
            "subset": self.subset,
            "split": self.split,
        }
        with self.steps(context) as steps:
            arguments = {"uri": self.dataset_uri, "options": options, "run": self.run_arguments(context)}
            return steps("initialize-dataset", arguments)
