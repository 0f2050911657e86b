"""Register an export in the Hugging Face Hub, the Kubeflow Model Registry, or MLflow."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step


@step
def register_model(
    model: dsl.Output[dsl.Model],
    # Written by `make edges` from RegisterModel.
    checkpoint_uri: str,
    checkpoint_digest: str,
    registry: str,
    name: str = "",
    version: str = "",
    alias: str = "",
    with_training_state: bool = False,
    log_run: bool = False,
    base_model: str = "",
    datasets: list = [],
    # End of what `make edges` writes.
    run: dict = {},
    workspace_path: str = "",
) -> NamedTuple("Outputs", [("uri", str), ("version", str), ("existed", bool)]):
    """Register an export. A registration that was interrupted is completed; a second one returns the first.

    The Hub gets a copy of the model with a model card; the other registries refer to the export, which is pinned. Credentials
    come from the step's environment: HF_TOKEN, MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN ...; see docs/registries.md.

    Args:
        checkpoint_uri: Export to register.
        checkpoint_digest: Digest of its manifest; any other content is rejected.
        registry: hf://org/name[@branch], model-registry://host[:port]/model, or mlflow://model.
        name: The model, if registry does not name it.
        version: Name of the version; a tag in the Hub. Not for MLflow.
        alias: Tag (Hub) or alias (MLflow) that is moved to the version, last.
        with_training_state: Whether to upload optimizer and random states too. Hub only.
        log_run: Whether to log the training metrics as a run. MLflow only.
        base_model: org/name of the fine-tuned model, for the model card.
        datasets: org/name of datasets, for the model card.
        model: What was registered; the weights are not in this artifact.
        run: The run, as start_run returns it: its id, its workspace, and further settings of this step.
        workspace_path: Where the workspace is mounted in this step, if it is: MLflow without MLFLOW_TRACKING_URI keeps its models in
            tracking/mlflow.db in it.

    Returns:
        uri: Where the registry has it.
        existed: Whether an earlier registration was complete.
    """
    from dataclasses import asdict
    from pathlib import Path

    from trainwright.steps.ends.step_end import explained_end, write_line
    from trainwright.steps.promotion.register import register_run_export
    from trainwright.steps.requests import RegisterModel
    from trainwright.steps.training.kfp_parameters import asked, run_of

    parameters = {
        # Written by `make edges` from RegisterModel.
        "checkpoint_uri": checkpoint_uri,
        "checkpoint_digest": checkpoint_digest,
        "registry": registry,
        "name": name,
        "version": version,
        "alias": alias,
        "with_training_state": with_training_state,
        "log_run": log_run,
        "base_model": base_model,
        "datasets": datasets,
        # End of what `make edges` writes.
    }
    with explained_end():
        registration = register_run_export(
            asked(RegisterModel, parameters, run_of(run).registration),
            folder=Path(workspace_path) / "tracking" if workspace_path else None,
            on_line=write_line,
        )
    write_line(f"{'found' if registration.existed else 'registered'} {registration.uri}, version {registration.version}")
    Path(model.path).write_text(f"{registration.uri}\n", "utf-8")
    model.metadata.update({**asdict(registration), "location": checkpoint_uri})
    return registration.uri, registration.version, registration.existed
