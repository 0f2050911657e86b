"""Prepare a base model in the workspace, before training."""

from kfp import dsl

from trainwright.components.step import step


@step
def initialize_model(
    model_uri: str,
    model: dsl.Output[dsl.Model],
    workspace_path: str = "/workspace",
    run_id: str = "",
    by_value: bool = False,
) -> str:
    """Fetch a model, check that it is complete and has safetensors weights, and store it in the workspace by its digest.

    An existing model of the same revision is reused.

    Args:
        model_uri: hf://, s3://, gs://, az://, pvc:// or file:///path to a folder that transformers can load; see
            docs/sources.md.
        model: The receipt: source, revision, files with sizes and digests.
        workspace_path: Where the workspace is mounted in this step.
        run_id: Id of the run, whose record in the workspace lists the model as used.
        by_value: Whether the artifact `model` is a copy of the prepared files, which the launcher uploads, not only their receipt.

    Returns:
        Digest of the model's files.
    """
    from pathlib import Path

    from trainwright.steps.prepare import copy_prepared, prepare_run_model
    from trainwright.steps.step_end import explained_end

    with explained_end():
        receipt = prepare_run_model(model_uri, Path(workspace_path), owner="kfp", run_id=run_id)
        if by_value:
            copy_prepared(Path(workspace_path), "model", receipt.digest, Path(model.path))
        else:
            Path(model.path).write_text(receipt.model_dump_json(indent=1), "utf-8")
    model.metadata.update({"source": model_uri, "revision": receipt.revision, "digest": receipt.digest})
    return receipt.digest
