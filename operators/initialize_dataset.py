"""Prepare a dataset in the workspace, before training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.operators.errors import fail_fast
from trainwright.operators.workspace_operator import WorkspaceOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class InitializeDatasetOperator(WorkspaceOperator):
    """Fetch a dataset, map its columns to a layout that TRL reads, split it, and store it in the workspace by its digest.

    :param dataset_uri: Dataset: hf://, s3://, gs://, az://, https://, pvc:// or file:///path to a file or a folder; see
        docs/sources.md.
    :param layout: Layout of the source: alpaca, prompt-completion, messages, text ... Empty: detected from the columns.
    :param test_fraction: Fraction of the rows to hold out, if the source has no split.
    :param max_rows: Maximum number of rows; 0 takes all.
    :param columns: Column of the source for each column to read, as {"prompt": "frage", "completion": "antwort"}.
    :param subset: Subset of the dataset, by its name on the hub or its folder; * takes all files. Empty: the default or only one.
    :param split: Split to train on. Empty: train.
    :param drop_overlap: Whether to leave out rows to train on that are held out, too, but for white space and case.
    :param model_uri: Model that will be trained, whose tokenizer counts the tokens of rows for the report. Empty: no tokens are
        counted.
    :param max_length: Tokens of a row in the training, which cuts longer ones, for the report. 0: not known.
    :param end_token: Token that ends every row in the training, as its end_token, for the report. Empty: that of the tokenizer.
    :param loss_on: What the training learns of messages, as its loss_on, for the report: answers, or all.
    :param report_mode: auto fails for rows on which TRL would fail; required also if the tokenizer cannot be fetched; warn never;
        off looks at no model.
    :param trainer: Builtin trainer that the rows are for; others are refused. Empty: any. Pipelines and DAGs set it.
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
    :return: source, revision, digest, train_rows, test_rows, figures of the report, and report (Markdown): rows, duplicates, tokens,
        what is cut and dropped, and a sample row as the model sees it. The folder of the run on the workspace has it as
        dataset-report.html, too.
    """

    template_fields = (
        # Written by `make edges` from InitializeDataset.
        *("dataset_uri", "layout", "test_fraction", "max_rows", "columns", "subset", "split", "drop_overlap"),
        *("model_uri", "max_length", "end_token", "loss_on", "report_mode", "trainer"),
        # End of what `make edges` writes.
        *WorkspaceOperator.template_fields,
    )

    def __init__(
        self,
        *,
        # Written by `make edges` from InitializeDataset.
        dataset_uri: str,
        layout: str = "",
        test_fraction: float | str = 0.1,
        max_rows: int | str = 0,
        columns: dict[str, Any] | str | None = None,
        subset: str = "",
        split: str = "",
        drop_overlap: bool | str = False,
        model_uri: str = "",
        max_length: int | str = 0,
        end_token: str = "",
        loss_on: str = "",
        report_mode: str = "auto",
        trainer: str = "",
        # End of what `make edges` writes.
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from InitializeDataset.
        self.dataset_uri = dataset_uri
        self.layout = layout
        self.test_fraction = test_fraction
        self.max_rows = max_rows
        self.columns = columns
        self.subset = subset
        self.split = split
        self.drop_overlap = drop_overlap
        self.model_uri = model_uri
        self.max_length = max_length
        self.end_token = end_token
        self.loss_on = loss_on
        self.report_mode = report_mode
        self.trainer = trainer
        # End of what `make edges` writes.
        self.check_values(vars(self))

    @fail_fast()
    def execute(self, context: Context) -> dict[str, Any]:
        from trainwright.steps.requests import InitializeDataset

        of_run = self.of_run()
        request = self.asked(
            InitializeDataset,
            {
                # Written by `make edges` from InitializeDataset.
                "dataset_uri": self.dataset_uri,
                "layout": self.layout,
                "test_fraction": self.test_fraction,
                "max_rows": self.max_rows,
                "columns": self.columns,
                "subset": self.subset,
                "split": self.split,
                "drop_overlap": self.drop_overlap,
                "model_uri": self.model_uri,
                "max_length": self.max_length,
                "end_token": self.end_token,
                "loss_on": self.loss_on,
                "report_mode": self.report_mode,
                "trainer": self.trainer,
                # End of what `make edges` writes.
            },
            of_run,
            of_run.data,
        )
        with self.steps(context, of_run) as steps:
            result = steps(request, self.step_run(context, of_run))
        return {name: value for name, value in result.items() if name != "report_page"}
