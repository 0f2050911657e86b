"""Prepare a dataset on the workspace, before any training job is made."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def initialize_dataset(
    dataset_uri: str,
    dataset: dsl.Output[dsl.Dataset],
    workspace_path: str = "/workspace",
    layout: str = "",
    test_fraction: float = 0.1,
    max_rows: int = 0,
    run_id: str = "",
) -> NamedTuple("Outputs", [("digest", str), ("train_rows", int), ("test_rows", int)]):
    """Fetch a dataset, map its columns to what TRL reads, split it, and share it on the workspace under its digest.

    Rows may have instruction and output (and input), prompt and completion, messages, or text. A dataset that is there
    already, from the same source in the same state, is used as it is; runs that prepare at the same time do not disturb
    each other.

    Args:
        dataset_uri: hf://org/name, or file:///path to a file or a folder (JSON Lines, JSON, CSV, Parquet).
        dataset: The receipt: source, revision, files with sizes and digests.
        workspace_path: Where the workspace is mounted in this step.
        layout: Force a layout: alpaca, prompt-completion, messages or text. Empty: by the columns.
        test_fraction: Share of the rows that is held out, where the source has no split of its own.
        max_rows: Take only so many rows; 0 takes all.
        run_id: The run that uses it, noted in the run's record on the workspace.

    Returns:
        digest: Digest of the prepared files; it changes when the data does.
        train_rows: Rows to train on.
        test_rows: Rows held out.
    """
    from pathlib import Path

    from trainwright.initializers import DatasetOptions, InitializerError
    from trainwright.steps.prepare import prepare_run_dataset
    from trainwright.storage import StorageError
    from trainwright.workspace import WorkspaceError

    options = DatasetOptions(layout=layout, test_fraction=test_fraction, max_rows=max_rows)
    try:
        receipt = prepare_run_dataset(dataset_uri, Path(workspace_path), options, owner="kfp", run_id=run_id)
    except (InitializerError, StorageError, WorkspaceError) as error:
        raise SystemExit(str(error)) from None
    Path(dataset.path).write_text(receipt.model_dump_json(indent=1), "utf-8")
    dataset.metadata.update({"source": dataset_uri, "revision": receipt.revision, "digest": receipt.digest})
    return receipt.digest, int(receipt.details["train_rows"]), int(receipt.details["test_rows"])
