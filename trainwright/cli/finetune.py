"""`trainwright finetune MODEL DATASET`: the whole chain on the current cluster, from the data to the evaluated export."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trainwright.cli.connection import HomeChoice, Kubeconfig, Namespace, SubmissionMode
from trainwright.cli.finetune_options import Method
from trainwright.cli.help_pages import OptionsByGroup
from trainwright.cli.output import Format
from trainwright.steps.default_workspace import WORKSPACE

_WHAT, _HOW, _WHERE = "Training", "Data, evaluation and models", "Cluster"


def register(app: typer.Typer) -> None:
    app.command("finetune", cls=OptionsByGroup)(finetune)


def _training(help_text: str, *names: str, **more: Any) -> Any:
    # The help names the default: 0 stands for it.
    return typer.Option(*names, help=help_text, rich_help_panel=_WHAT, show_default=False, **more)


def _structure(option: str, help_text: str, panel: str) -> Any:
    return typer.Option(option, metavar="KEY=VALUE|JSON", help=help_text, rich_help_panel=panel)


def finetune(
    model: Annotated[str, typer.Argument(help="org/name of the hub, a folder, or a URI: hf://, s3://, gs://, az://, pvc://.")],
    dataset: Annotated[str, typer.Argument(help="org/name of the hub, a file or folder, or a URI, also https://.")],
    method: Annotated[
        Method | None,
        _training("lora (default), qlora (base model in 4 bits), full (all weights), or dpo or kto (preferences, with LoRA)."),
    ] = None,
    nodes: Annotated[int | None, _training("Number of nodes. Default: 1.", min=1)] = None,
    gpus: Annotated[
        int | None, _training("GPUs of each node; 0: train on the CPU. Default: 1 if any node of the cluster has one.", min=0)
    ] = None,
    epochs: Annotated[float, _training("Passes over the rows. Default: 1.", min=0)] = 0,
    learning_rate: Annotated[float, _training("Default: that of the trainer, 2e-4 for lora.", min=0)] = 0,
    batch_size: Annotated[int, _training("Rows per step and process. Default: 8.", min=0)] = 0,
    max_length: Annotated[int, _training("Tokens of a row; longer ones are cut. Default: 1024.", min=0)] = 0,
    training: Annotated[
        list[str] | None,
        _structure("--training", "Any other setting of the training, such as settings or image; repeatable.", _WHAT),
    ] = None,
    data: Annotated[
        list[str] | None, _structure("--data", "Settings of the data, such as layout or columns; repeatable.", _HOW)
    ] = None,
    evaluation: Annotated[
        list[str] | None,
        _structure("--evaluation", "Settings of export, evaluation, promotion and registration; repeatable.", _HOW),
    ] = None,
    tracking: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOOL[:ADDRESS]",
            help="Where metrics go: mlflow, wandb or tensorboard; repeatable.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    export: Annotated[
        str,
        typer.Option(
            help="Folder of exported checkpoints. Default: ./exports beside an embedded cluster, else exports/ in the workspace.",
            rich_help_panel=_HOW,
        ),
    ] = "",
    promote: Annotated[str, typer.Option(help="Promote the export to champion: better or always.", rich_help_panel=_HOW)] = "",
    registry: Annotated[
        str,
        typer.Option(
            help="Register the export: hf://org/name, model-registry://host/model or mlflow://model.", rich_help_panel=_HOW
        ),
    ] = "",
    run_id: Annotated[
        str,
        typer.Option(
            help="Name of the run; with that of an earlier one, that is resumed. Default: a new run.", rich_help_panel=_WHERE
        ),
    ] = "",
    workspace: Annotated[
        str,
        typer.Option(help=f"Claim that the steps share; with ?size= it is created. Default: {WORKSPACE}", rich_help_panel=_WHERE),
    ] = "",
    queue_name: Annotated[str, typer.Option(help="Kueue LocalQueue.", rich_help_panel=_WHERE)] = "",
    store_secret: Annotated[
        str, typer.Option(help="Secret with credentials of the object store, for pods.", rich_help_panel=_WHERE)
    ] = "",
    hub_secret: Annotated[str, typer.Option(help="Secret with HF_TOKEN, for pods.", rich_help_panel=_WHERE)] = "",
    logs: Annotated[bool, typer.Option("--logs", help="Show the log of the training.")] = False,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
    output: Annotated[Format | None, typer.Option("-o", "--output", help="Print the result as a document.")] = None,
) -> None:
    """Fine-tune a model on a dataset: report on the data, train, export, compare with the base model.

    Works on the cluster of the kubeconfig, or on one of this machine (trainwright up). Ctrl-C suspends the training; the same
    command with --run-id resumes it.
    """
    given = dict(locals())
    from trainwright.cli.finetune_run import run_finetune  # 80 ms, which other commands need not wait for

    run_finetune(given)
