"""`trainwright register`: register an export in the Hugging Face Hub, the Kubeflow Model Registry, or MLflow."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from trainwright.checkpoints.registries.register import register_export
from trainwright.checkpoints.registries.registration import RegistrationOptions
from trainwright.cli.checkpoint_commands.presentation import Output, byte_progress, errors_exit, path_as_uri, show
from trainwright.cli.output import ViewFormat
from trainwright.evaluation.loss_curve import loss_curve_svg


def register(app: typer.Typer) -> None:
    app.command("register")(register_in_registry)


def register_in_registry(
    uri: Annotated[str, typer.Argument(metavar="EXPORT_URI", help="An exported checkpoint.", callback=path_as_uri)],
    to: Annotated[
        str, typer.Argument(help="hf://org/name[@branch], model-registry://host[:port]/model, or mlflow://model.", metavar="TO")
    ],
    name: Annotated[str, typer.Option(help="The model, if TO does not name it.")] = "",
    version: Annotated[str, typer.Option(help="Name of the version; a tag in the Hub. Not for MLflow.")] = "",
    alias: Annotated[str, typer.Option(help="Move this tag (Hub) or alias (MLflow) to the version, last.")] = "",
    with_training_state: Annotated[
        bool, typer.Option("--with-training-state", help="Upload optimizer and random states, too. Hub only.")
    ] = False,
    log_run: Annotated[bool, typer.Option("--log-run", help="Log the training metrics as a run. MLflow only.")] = False,
    base_model: Annotated[str, typer.Option(help="org/name of the fine-tuned model, for the model card.")] = "",
    dataset: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="org/name of a dataset, for the model card. Repeatable.")
    ] = None,
    digest: Annotated[str, typer.Option(help="Expected digest of the manifest.")] = "",
    scratch: Annotated[Path | None, typer.Option(help="Folder to fetch files to before they are uploaded.")] = None,
    output: Output = ViewFormat.table,
) -> None:
    """Register an export in a registry. A registration that was interrupted is completed; a second one returns the first."""
    with errors_exit(), byte_progress("fetching") as start_progress:
        options = RegistrationOptions(
            version=version,
            alias=alias,
            training_state=with_training_state,
            log_run=log_run,
            base_model=base_model,
            datasets=tuple(dataset or ()),
            draw_curve=lambda history: loss_curve_svg(history, None, None),
            scratch=scratch,
            start_progress=start_progress,
        )
        registration = register_export(uri, to, name=name, digest=digest, options=options)
    show(asdict(registration), output)
