"""`trainwright finetune MODEL DATASET`: the whole chain on the current cluster, from the data to the evaluated export."""

from __future__ import annotations

import enum
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from trainwright.api.errors import BadRequest
from trainwright.api.quantities import parse_quantity
from trainwright.cli.connection import HomeChoice, Kubeconfig, Namespace, SubmissionMode, jobs_cluster_for
from trainwright.cli.errors import bad_input_exits, cluster_errors_exit, fail
from trainwright.cli.finetune_display import ChainDisplay, show_result
from trainwright.cli.help_pages import OptionsByGroup
from trainwright.cli.output import Format, print_lines, print_object
from trainwright.cli.request_options import parsed_mapping
from trainwright.cli.submit_step import OWNER, new_run_id
from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.jobs.diagnosis.exit_codes import ExitCode, exit_code_of
from trainwright.jobs.request.validation_problems import message_of
from trainwright.jobs.submit.capacity import nodes_of
from trainwright.steps.fine_tuning import fine_tune
from trainwright.steps.on_cluster import MOUNT
from trainwright.steps.places import place_uri, source_uri
from trainwright.steps.requests import FineTuning
from trainwright.steps.step_end import EXPECTED
from trainwright.storage.uri import StorageUri
from trainwright.submission.jobs_client import JobsClient, is_embedded

_WORKSPACE, _SHARED = "pvc://trainwright-finetune?size=50Gi", "&access=ReadWriteMany"
"""A claim on one machine can be used by any number of nodes."""
_GPU = "nvidia.com/gpu"
_WHAT, _HOW, _WHERE = "Training", "Data, evaluation and models", "Cluster"


class Method(enum.StrEnum):
    """What is trained, and on what rows."""

    lora = "lora"
    qlora = "qlora"
    full = "full"
    dpo = "dpo"
    kto = "kto"


_PREFERENCES = (Method.dpo, Method.kto)
"""Trainers of their own, by default with LoRA."""


def register(app: typer.Typer) -> None:
    app.command("finetune", cls=OptionsByGroup)(finetune)


def _training(help_text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=_WHAT, **more)


def _structure(option: str, help_text: str, panel: str) -> Any:
    return typer.Option(option, metavar="KEY=VALUE|JSON", help=help_text, rich_help_panel=panel)


def finetune(
    model: Annotated[str, typer.Argument(help="org/name of the hub, a folder, or a URI: hf://, s3://, gs://, az://, pvc://.")],
    dataset: Annotated[str, typer.Argument(help="org/name of the hub, a file or folder, or a URI, also https://.")],
    method: Annotated[
        Method, _training("lora, qlora (base model in 4 bits), full (all weights), or dpo or kto (preferences, with LoRA).")
    ] = Method.lora,
    nodes: Annotated[int, _training("Number of nodes.", min=1)] = 1,
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
        typer.Option(
            help=f"Claim that the steps share; with ?size= it is created. Default: {_WORKSPACE}", rich_help_panel=_WHERE
        ),
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
    with cluster_errors_exit():
        with bad_input_exits():
            given |= _parsed(given)
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
        run = run_id or new_run_id()
        with bad_input_exits():
            request = _request(cluster, given, is_embedded(cluster))
    display = ChainDisplay(Console(stderr=output is not None, markup=False, emoji=False), with_logs=logs)
    resume = f"to resume, run the command again with --run-id {shlex.quote(run)}"
    try:
        with display:
            result = fine_tune(
                cluster, request, owner=OWNER, run_id=run, namespace=namespace or cluster.default_namespace, watcher=display
            )
    except KeyboardInterrupt:
        fail(f"interrupted; {resume}", int(ExitCode.interrupted))
    except Cancelled as error:
        fail(f"{error}; {resume}", int(ExitCode.interrupted))
    except EXPECTED as error:
        code = exit_code_of(error)
        print_lines(
            "\n".join([f"{display.step}: {message_of(error)}".removeprefix(": "), *getattr(error, "__notes__", ())]), error=True
        )
        if display.step and code is not ExitCode.bad_input:
            print_lines(resume, error=True)
        raise typer.Exit(int(code)) from None
    if output is not None:
        print_object(asdict(result), output)
    else:
        show_result(result)
    sys.stdout.flush()


def _parsed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sources as URIs, and the structures as objects. Raises BadRequest, and ValueError naming the source."""
    sources = {name: source_uri(given[name]) for name in ("model", "dataset")}
    return {**sources, **{name: parsed_mapping(f"--{name}", given[name] or []) for name in ("training", "data", "evaluation")}}


def _request(cluster: JobsClient, given: Mapping[str, Any], is_here: bool) -> FineTuning:
    """Return what is asked of the chain. Raises BadRequest, and ValueError naming the setting."""
    workspace = given["workspace"] or (_WORKSPACE + _SHARED if is_here else _WORKSPACE)
    method, training = given["method"], given["training"]
    settings = training.get("settings") or {}
    if not isinstance(settings, dict):
        raise BadRequest("--training: settings: expected an object with settings by name")
    if method in _PREFERENCES:
        training = {"builtin": method.value, **training}
    gpus = _gpus(cluster, given["gpus"])
    if not gpus and "cpu" not in settings:
        if method is Method.qlora:
            raise BadRequest("--method qlora: needs a GPU, and no node has one; use --method lora")
        settings = {**settings, "cpu": True}
    training = {**training} | {name: given[name] for name in ("store_secret", "hub_secret") if given[name]}
    if not gpus:
        training.setdefault("num_proc_per_node", 1)
    export = _export(given["export"], is_here, reads=bool(given["promote"] or given["registry"]))
    for name in ("model", "dataset"):
        if given[name].startswith("file://") and not is_here:
            raise BadRequest(
                f"{name}: {given[name]}: pods of the cluster do not see this machine's files; copy it to an object store"
            )
    return FineTuning.from_parameters(
        {
            "model_uri": given["model"],
            "dataset_uri": given["dataset"],
            "export_uri": export,
            "workspace": workspace,
            "num_nodes": given["nodes"],
            "resources_per_node": {_GPU: gpus} if gpus else {},
            "method": "" if method in _PREFERENCES else method.value,
            "training": {**training, **({"settings": settings} if settings else {})},
            **{name: given[name] for name in ("data", "evaluation")},
            **{name: given[name] for name in ("epochs", "learning_rate", "batch_size", "max_length", "queue_name")},
            **{name: given[name] for name in ("promote", "registry")},
        }
    )


def _gpus(cluster: JobsClient, asked: int | None) -> int:
    if asked is not None:
        return asked
    nodes = nodes_of(cluster, cluster.base)
    if not nodes:
        raise BadRequest(
            "--gpus: the nodes of the cluster cannot be listed; say how many GPUs each node has, 0 to train on the CPU"
        )
    amounts = [((node.get("status") or {}).get("allocatable") or {}).get(_GPU, 0) for node in nodes]
    return int(any(parse_quantity(amount).value > 0 for amount in amounts))


def _export(given: str, is_here: bool, *, reads: bool) -> str:
    """Return the URI of the folder of exports; by default it is on the workspace.

    Raises BadRequest if this machine `reads` them, cannot, and no other folder is named.
    """
    if given:
        return place_uri(given)
    if is_here:
        return str(StorageUri.from_path(Path("exports")))
    if reads:
        raise BadRequest("--promote, --registry: this machine must reach the exports; set --export to an object store")
    return f"file://{MOUNT}/exports"
