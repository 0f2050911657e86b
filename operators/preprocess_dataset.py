"""Preprocess a dataset of the workspace with Ray Data, before it is prepared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.operators.errors import fail_fast
from trainwright.operators.workspace_operator import WorkspaceOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class PreprocessDatasetOperator(WorkspaceOperator):
    """Preprocess rows with Ray Data: columns, white space, a function of yours, empty, short and long rows, duplicates.

    The operations are applied in the order of the parameters. The result is a folder of JSON Lines in the workspace, named by the
    contents and the operations: the same again is found instead of made. Ray is installed on first use, see docs/tools.md.

    :param data_uri: file:// or pvc://, or a path in the workspace: a file or a folder of JSON Lines, JSON, CSV or Parquet.
    :param columns: Column of the source for each column to keep, as {"prompt": "frage"}. Empty: all as they are.
    :param normalize_whitespace: Whether to unify line ends and spaces, and strip texts; indentation stays.
    :param transform: Source of a function of a row, which returns the row, or None to drop it. It contains its imports.
    :param drop_empty: Whether to drop rows whose texts are all blank.
    :param min_chars: Minimum length of all texts of a row together.
    :param max_chars: Maximum length of all texts of a row together; 0 has none.
    :param deduplicate: Whether to drop rows that equal an earlier one.
    :param deduplicate_by: Columns that are compared. Empty: all.
    :param ray_address: Address of a Ray cluster that sees the workspace at the same path. Empty: Ray is started in this step.
    :param run: the run, as StartRunOperator returns it: its id, its workspace, where it is done, and further settings of this task.
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
    :return: data_uri (the folder, where this step sees it), digest, rows_in, rows_out, dropped.
    """

    template_fields = (
        # Written by `make edges` from PreprocessDataset.
        *("data_uri", "columns", "normalize_whitespace", "transform", "drop_empty", "min_chars"),
        *("max_chars", "deduplicate", "deduplicate_by", "ray_address"),
        # End of what `make edges` writes.
        *WorkspaceOperator.template_fields,
    )

    def __init__(
        self,
        *,
        # Written by `make edges` from PreprocessDataset.
        data_uri: str,
        columns: dict[str, Any] | str | None = None,
        normalize_whitespace: bool | str = True,
        transform: str = "",
        drop_empty: bool | str = True,
        min_chars: int | str = 0,
        max_chars: int | str = 0,
        deduplicate: bool | str = True,
        deduplicate_by: list[Any] | str | None = None,
        ray_address: str = "",
        # End of what `make edges` writes.
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from PreprocessDataset.
        self.data_uri = data_uri
        self.columns = columns
        self.normalize_whitespace = normalize_whitespace
        self.transform = transform
        self.drop_empty = drop_empty
        self.min_chars = min_chars
        self.max_chars = max_chars
        self.deduplicate = deduplicate
        self.deduplicate_by = deduplicate_by
        self.ray_address = ray_address
        # End of what `make edges` writes.
        self.check_values(vars(self))

    @fail_fast()
    def execute(self, context: Context) -> dict[str, Any]:
        from trainwright.steps.requests import PreprocessDataset

        of_run = self.of_run()
        request = self.asked(
            PreprocessDataset,
            {
                # Written by `make edges` from PreprocessDataset.
                "data_uri": self.data_uri,
                "columns": self.columns,
                "normalize_whitespace": self.normalize_whitespace,
                "transform": self.transform,
                "drop_empty": self.drop_empty,
                "min_chars": self.min_chars,
                "max_chars": self.max_chars,
                "deduplicate": self.deduplicate,
                "deduplicate_by": self.deduplicate_by,
                "ray_address": self.ray_address,
                # End of what `make edges` writes.
            },
            of_run,
            of_run.preprocessing,
        )
        with self.steps(context, of_run) as steps:
            return steps(request, self.step_run(context, of_run))
