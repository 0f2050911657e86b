"""Prepare a base model in the workspace, before training."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step


@step
def initialize_model(
    model: dsl.Output[dsl.Model],
    # Written by `make edges` from InitializeModel.
    model_uri: str,
    # End of what `make edges` writes.
    run: dict = {},
    workspace_path: str = "",
    run_id: str = "",
    by_value: bool = False,
) -> NamedTuple("Outputs", [("digest", str), ("shape", dict)]):
    """Fetch a model, check that it is complete and has safetensors weights, and store it in the workspace by its digest.

    An existing model of the same revision is reused.

    Args:
        model_uri: Base model: hf://, s3://, gs://, az://, pvc:// or file:///path; see docs/sources.md.
        model: The receipt: source, revision, files with sizes and digests.
        run: The run, as start_run returns it: its id and its workspace.
        workspace_path: Where the workspace is mounted in this step.
        run_id: Id of the run, whose record in the workspace lists the model as used.
        by_value: Whether the artifact `model` is a copy of the prepared files, which the launcher uploads, not only their receipt.

    Returns:
        digest: Digest of the model's files.
        shape: Sizes of the model, for the parameter model_shape of the training; empty if they are not known.
    """
    from pathlib import Path

    from trainwright.steps.data.prepare import copy_prepared, receipt_text
    from trainwright.steps.ends.step_end import explained_end
    from trainwright.steps.requests import InitializeModel, StepRun
    from trainwright.steps.training.kfp_parameters import asked, run_of
    from trainwright.steps.workspace_steps import do_step
    from trainwright.workspace.layout import prepared_path

    parameters = {
        # Written by `make edges` from InitializeModel.
        "model_uri": model_uri,
        # End of what `make edges` writes.
    }
    with explained_end():
        of_run = run_of(run, run_id=run_id, workspace_path=workspace_path)
        workspace = Path(of_run.workspace_path or "/workspace")
        result = do_step(workspace, asked(InitializeModel, parameters), StepRun("kfp", of_run.run_id))
        if by_value:
            copy_prepared(workspace, "model", result["digest"], Path(model.path))
        else:
            prepared = prepared_path(workspace, "model", result["digest"])
            Path(model.path).write_text(receipt_text(prepared), "utf-8")
    model.metadata.update({name: result[name] for name in ("source", "revision", "digest", "shape")})
    return str(result["digest"]), result["shape"]
