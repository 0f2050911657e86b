"""Preprocess a dataset of the workspace with Ray Data, before it is prepared."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step


@step
def preprocess_dataset(
    dataset: dsl.Output[dsl.Dataset],
    # Written by `make edges` from PreprocessDataset.
    data_uri: str,
    columns: dict = {},
    normalize_whitespace: bool = True,
    transform: str = "",
    drop_empty: bool = True,
    min_chars: int = 0,
    max_chars: int = 0,
    deduplicate: bool = True,
    deduplicate_by: list = [],
    ray_address: str = "",
    # End of what `make edges` writes.
    run: dict = {},
    workspace_path: str = "",
    run_id: str = "",
) -> NamedTuple("Outputs", [("data_uri", str), ("digest", str), ("rows_in", int), ("rows_out", int), ("dropped", dict)]):
    """Preprocess rows with Ray Data: columns, white space, a function of yours, empty, short and long rows, duplicates.

    The operations are applied in the order of the parameters. The result is a folder of JSON Lines in the workspace, named by the
    contents and the operations: the same again is found instead of made. Ray is installed on first use, see docs/tools.md.

    Args:
        data_uri: file:// or pvc://, or a path in the workspace: a file or a folder of JSON Lines, JSON, CSV or Parquet.
        columns: Column of the source for each column to keep, as {"prompt": "frage"}. Empty: all as they are.
        normalize_whitespace: Whether to unify line ends and spaces, and strip texts; indentation stays.
        transform: Source of a function of a row, which returns the row, or None to drop it. It contains its imports.
        drop_empty: Whether to drop rows whose texts are all blank.
        min_chars: Minimum length of all texts of a row together.
        max_chars: Maximum length of all texts of a row together; 0 has none.
        deduplicate: Whether to drop rows that equal an earlier one.
        deduplicate_by: Columns that are compared. Empty: all.
        ray_address: Address of a Ray cluster that sees the workspace at the same path. Empty: Ray is started in this step.
        dataset: The receipt: files with sizes and digests, operations, and counts of rows.
        workspace_path: Where the workspace is mounted in this step.
        run: The run, as start_run returns it: its id, its workspace, and further settings of this step.
        run_id: Id of the run, whose record in the workspace lists the result as used.

    Returns:
        digest: Digest of the preprocessed files.
        rows_in: Number of rows of the source.
        rows_out: Number of rows that are left.
        dropped: Number of dropped rows by reason.
    """
    from pathlib import Path

    from trainwright.steps.data.prepare import receipt_text
    from trainwright.steps.ends.step_end import explained_end, write_line
    from trainwright.steps.requests import PreprocessDataset, StepRun
    from trainwright.steps.training.kfp_parameters import asked, run_of
    from trainwright.steps.workspace_steps import do_step
    from trainwright.storage.uri import StorageUri

    parameters = {
        # Written by `make edges` from PreprocessDataset.
        "data_uri": data_uri,
        "columns": columns,
        "normalize_whitespace": normalize_whitespace,
        "transform": transform,
        "drop_empty": drop_empty,
        "min_chars": min_chars,
        "max_chars": max_chars,
        "deduplicate": deduplicate,
        "deduplicate_by": deduplicate_by,
        "ray_address": ray_address,
        # End of what `make edges` writes.
    }
    with explained_end():
        of_run = run_of(run, run_id=run_id, workspace_path=workspace_path)
        workspace = Path(of_run.workspace_path or "/workspace")
        request = asked(PreprocessDataset, parameters, of_run.preprocessing)
        done = do_step(workspace, request, StepRun("kfp", of_run.run_id), write_line)
    Path(dataset.path).write_text(receipt_text(StorageUri.parse(done["data_uri"]).path), "utf-8")
    dataset.metadata.update(
        {"source": data_uri, "location": done["data_uri"], **{name: done[name] for name in ("digest", "rows_in", "rows_out")}}
    )
    return done["data_uri"], done["digest"], done["rows_in"], done["rows_out"], done["dropped"]
