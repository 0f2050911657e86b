"""Prepare a dataset in the workspace, before training."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step


@step(needs=("dataset_uri", "source"))
def initialize_dataset(
    dataset: dsl.Output[dsl.Dataset],
    report: dsl.Output[dsl.Markdown],
    report_page: dsl.Output[dsl.HTML],
    # Written by `make edges` from InitializeDataset.
    dataset_uri: str = "",
    layout: str = "",
    test_fraction: float = 0.1,
    max_rows: int = 0,
    columns: dict = {},
    subset: str = "",
    split: str = "",
    drop_overlap: bool = False,
    model_uri: str = "",
    max_length: int = 0,
    end_token: str = "",
    loss_on: str = "",
    report_mode: str = "auto",
    trainer: str = "",
    # End of what `make edges` writes.
    run: dict = {},
    workspace_path: str = "",
    run_id: str = "",
    by_value: bool = False,
    source: dsl.Input[dsl.Dataset] = None,
) -> NamedTuple("Outputs", [("digest", str), ("train_rows", int), ("test_rows", int)]):
    """Fetch a dataset, map its columns to a layout that TRL reads, split it, and store it in the workspace by its digest.

    Rows may have prompt and completion, messages, text, or one of the other layouts that docs/datasets.md lists. An existing
    dataset from the same source and revision is reused. Several runs may prepare datasets at the same time. The report says what
    training will make of the rows; rows on which it would fail are refused.

    Args:
        dataset_uri: Dataset: hf://, s3://, gs://, az://, https://, pvc:// or file:///path to a file or a folder; see
            docs/sources.md.
        layout: Layout of the source: alpaca, prompt-completion, messages, text ... Empty: detected from the columns.
        test_fraction: Fraction of the rows to hold out, if the source has no split.
        max_rows: Maximum number of rows; 0 takes all.
        columns: Column of the source for each column to read, as {"prompt": "frage", "completion": "antwort"}.
        subset: Subset of the dataset, by its name on the hub or its folder; * takes all files. Empty: the default or only one.
        split: Split to train on. Empty: train.
        drop_overlap: Whether to leave out rows to train on that are held out, too, but for white space and case.
        model_uri: Model that will be trained, whose tokenizer counts the tokens of rows for the report. Empty: no tokens are
            counted.
        max_length: Tokens of a row in the training, which cuts longer ones, for the report. 0: not known.
        end_token: Token that ends every row in the training, as its end_token, for the report. Empty: that of the tokenizer.
        loss_on: What the training learns of messages, as its loss_on, for the report: answers, or all.
        report_mode: auto fails for rows on which TRL would fail; required also if the tokenizer cannot be fetched; warn never; off
            looks at no model.
        trainer: Builtin trainer that the rows are for; others are refused. Empty: any. Pipelines and DAGs set it.
        dataset: The receipt: source, revision, files with sizes and digests, and the figures of the report.
        report: Rows, duplicates, tokens, what is cut and dropped, and a sample row as the model sees it, as Markdown.
        report_page: The report as HTML.
        workspace_path: Where the workspace is mounted in this step.
        run: The run, as start_run returns it: its id, its workspace, and further settings of this step.
        run_id: Id of the run, whose record in the workspace lists the dataset as used.
        by_value: Whether the artifact `dataset` is a copy of the prepared files, which the launcher uploads, not only their receipt.
        source: Instead of dataset_uri: a dataset that an earlier step has made.

    Returns:
        digest: Digest of the prepared files; it changes when the data changes.
        train_rows: Number of training rows.
        test_rows: Number of held-out rows.
    """
    from pathlib import Path

    from trainwright.steps.data.prepare import copy_prepared, receipt_text
    from trainwright.steps.ends.step_end import explained_end
    from trainwright.steps.requests import InitializeDataset, StepRun
    from trainwright.steps.training.kfp_parameters import asked, of_source, run_of
    from trainwright.steps.workspace_steps import do_step
    from trainwright.workspace.layout import prepared_path

    parameters = {
        # Written by `make edges` from InitializeDataset.
        "dataset_uri": dataset_uri,
        "layout": layout,
        "test_fraction": test_fraction,
        "max_rows": max_rows,
        "columns": columns,
        "subset": subset,
        "split": split,
        "drop_overlap": drop_overlap,
        "model_uri": model_uri,
        "max_length": max_length,
        "end_token": end_token,
        "loss_on": loss_on,
        "report_mode": report_mode,
        "trainer": trainer,
        # End of what `make edges` writes.
    }
    with explained_end():
        of_run = run_of(run, run_id=run_id, workspace_path=workspace_path)
        workspace = Path(of_run.workspace_path or "/workspace")
        request = asked(InitializeDataset, parameters, of_run.data.joined(of_source(source)))
        result = do_step(workspace, request, StepRun("kfp", of_run.run_id))
        if by_value:
            copy_prepared(workspace, "dataset", result["digest"], Path(dataset.path))
        else:
            prepared = prepared_path(workspace, "dataset", result["digest"])
            Path(dataset.path).write_text(receipt_text(prepared, result["figures"]), "utf-8")
    Path(report.path).write_text(result["report"], "utf-8")
    Path(report_page.path).write_text(result["report_page"], "utf-8")
    dataset.metadata.update({name: result[name] for name in ("source", "revision", "digest")})
    return result["digest"], result["train_rows"], result["test_rows"]
