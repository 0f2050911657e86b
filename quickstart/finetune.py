"""`make finetune`: fine-tunes a language model with a pipeline or a DAG, on its own embedded cluster.

Order: run folder, control plane, base model, claim, pipeline, result. Ctrl-C suspends the training and stops everything;
the same command resumes.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from trainwright.checkpoints.formats.whole_files import training_state
from trainwright.checkpoints.manifest import LATEST
from trainwright.cli.page_link import page_line
from trainwright.embedded.lifecycle import StartFailed
from trainwright.evaluation.figures import loss_of
from trainwright.quickstart.bundled import QUICKSTART_SETTINGS, SAMPLE_ROW, USUAL_SECONDS, base_model, bundled_dataset
from trainwright.quickstart.local_cluster import LocalCluster, local_cluster
from trainwright.quickstart.orchestrators import ORCHESTRATORS, Parameters
from trainwright.quickstart.request_checks import check_request
from trainwright.quickstart.run_folder import Request, RunError, RunFolder, check_name, open_run
from trainwright.quickstart.terminal import StepsView, collect_result, show_summary
from trainwright.steps.data.places import place_uri
from trainwright.steps.evaluate import FOLDER, RESULT
from trainwright.storage.uri import StorageUri
from trainwright.text.text_input import Unreadable, read_json
from trainwright.workspace import run_folder
from trainwright.workspace.layout import run_name

MIN_FREE_BYTES = 512 * 1024 * 1024
INTERRUPTED = 130
OTHER_SETTINGS = json.dumps({"method": "lora", "epochs": 1, "save_steps": 50, "logging_steps": 1})


@dataclass(frozen=True)
class Options:
    """The options of `make finetune`. Empty values default to the bundled dataset and model."""

    runs: Path
    name: str = ""
    model: str = ""
    dataset: str = ""
    export: str = ""
    settings: str = ""
    orchestrator: str = "kfp"
    columns: str = ""
    layout: str = ""
    nodes: int = 2
    keep: bool = False
    preset: str = "quickstart"


def finetune(options: Options, console: Console) -> int:
    """Run the fine-tuning; returns the exit status: 0, 1 (failed), 2 (invalid input) or 130 (interrupted)."""
    began = time.monotonic()
    try:
        folder = _open_run_folder(options)
    except RunError as error:
        console.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        return 2
    if (result := folder.result()) is not None:
        console.print(f"Run {folder.name} has already finished.")
        show_summary(result, console)
        return 0
    console.print(f"[bold]Fine-tuning[/bold] in {escape(str(folder.path))}", highlight=False)
    request = folder.request()
    assert request is not None
    run_lock = folder.lock()
    if run_lock is None:
        console.print(f"[red]{escape(str(folder.path))} is in use by another command; wait for it, or choose another NAME[/red]")
        return 2
    try:
        with local_cluster(options.runs, console, keep=options.keep, warm_for=_pod_variables(request)) as cluster:
            try:
                return _run(options, folder, request, cluster, console, began)
            except KeyboardInterrupt:
                console.print("\nStopping: the training is suspended; the same command resumes it from its last checkpoint.")
                cluster.suspend_all(folder.name)
                return INTERRUPTED
    except StartFailed as error:
        console.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    finally:
        os.close(run_lock)


def _run(options: Options, folder: RunFolder, request: Request, cluster: LocalCluster, console: Console, began: float) -> int:
    orchestrator = ORCHESTRATORS[request.orchestrator]
    orchestrator.load()
    cluster.ready()
    if line := page_line(cluster.home, is_terminal=console.is_terminal):
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    model = request.model or str(StorageUri.from_path(base_model(options.runs / ".models", options.preset, console)))
    claim = f"finetune-{folder.name}"[:53]
    cluster.create_claim(claim, folder.workspace)
    usual = {} if options.model or options.dataset else USUAL_SECONDS
    with StepsView(folder.log, usual_seconds=usual) as view:
        succeeded = orchestrator.run(view, folder, _parameters(folder, request, model, claim))
    if view.nodes_started is not None:
        first = f", the first step {view.training_began - began:.1f} s" if view.training_began else ""
        console.print(
            f"  [dim]the nodes started {view.nodes_started - began:.1f} s after the start{first}[/dim]", highlight=False
        )
    if not succeeded:
        console.print(f"[red]The pipeline failed.[/red] Last lines of {escape(str(folder.log))}:", highlight=False)
        console.print(view.failure_log, markup=False, highlight=False, soft_wrap=True)
        return 1
    result = _collect(folder, request, view.durations)
    folder.finish(result)
    show_summary(result, console)
    console.print(f"[dim]{time.monotonic() - began:.1f} s in all[/dim]", highlight=False)
    return 0


def _open_run_folder(options: Options) -> RunFolder:
    if options.orchestrator not in ORCHESTRATORS:
        raise RunError(f"ORCHESTRATOR={options.orchestrator}: expected one of {', '.join(ORCHESTRATORS)}")
    request = Request(
        orchestrator=options.orchestrator,
        dataset=_as_uri(options.dataset) or bundled_dataset(),
        model=_as_uri(options.model),
        export=_as_uri(options.export),
        settings=_settings(options),
        nodes=options.nodes,
        columns=options.columns,
        layout=options.layout,
    )
    check_name(options.name)
    check_request(request)
    request = replace(request, settings=_with_device(request.settings))
    try:
        options.runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = shutil.disk_usage(options.runs).free
        if free < MIN_FREE_BYTES:
            raise RunError(f"{options.runs}: only {free // 2**20} MiB are free; a run needs {MIN_FREE_BYTES // 2**20} MiB")
        return open_run(options.runs, options.name, request)
    except OSError as error:
        raise RunError(f"{error.filename or options.runs}: {error.strerror}") from error


def _settings(options: Options) -> str:
    """Settings tuned for the bundled model and dataset, or generic ones for others, changed as SETTINGS says.

    What cannot be changed so is left as it is given; `check_request` says what is wrong with it.
    """
    tuned = json.loads(OTHER_SETTINGS if options.model or options.dataset else QUICKSTART_SETTINGS)
    try:
        given = read_json(options.settings or "{}")
    except Unreadable:
        return options.settings
    if not isinstance(given, dict):
        return options.settings
    if "epochs" in given and "steps" not in given:
        tuned.pop("steps", None)  # they would come before the epochs
    return json.dumps({**tuned, **given})


def _with_device(settings: str) -> str:
    """Checked settings, and that they are for the CPU if there is no GPU, unless they say so themselves."""
    chosen = json.loads(settings)
    return settings if "cpu" in chosen else json.dumps({"cpu": shutil.which("nvidia-smi") is None} | chosen)


def _as_uri(text: str) -> str:
    try:
        return place_uri(text)
    except ValueError as error:
        raise RunError(str(error)) from None


def _parameters(folder: RunFolder, request: Request, model: str, claim: str) -> Parameters:
    training = {
        "run_id": folder.name,
        "workspace_path": str(folder.workspace.absolute()),
        "settings": json.loads(request.settings),
        "num_proc_per_node": 1,
        "env": _variables(request),
    }
    return Parameters(
        dataset_uri=request.dataset,
        model_uri=model,
        export_uri=_export_uri(folder, request),
        workspace=claim,
        num_nodes=request.nodes,
        training=training,
        data={
            **({"columns": json.loads(request.columns)} if request.columns else {}),
            **({"layout": request.layout} if request.layout else {}),
        },
        evaluation={"sample_row": SAMPLE_ROW if request.dataset == bundled_dataset() else 0},
    )


def _variables(request: Request) -> dict[str, str]:
    """Variables of the training program."""
    is_local = not request.model or request.model.startswith("file://")
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"} if is_local else {}
    return {**offline, "TOKENIZERS_PARALLELISM": "false"}


def _pod_variables(request: Request) -> dict[str, str]:
    """Variables of the training's pods: of the program, of its runtime, and their share of the cores."""
    threads = max((os.cpu_count() or 1) // request.nodes, 1)
    return {**_variables(request), "HOME": "/home/trainwright", "OMP_NUM_THREADS": str(threads)}


def _export_uri(folder: RunFolder, request: Request) -> str:
    return request.export or str(StorageUri.from_path(folder.export))


def _collect(folder: RunFolder, request: Request, durations: dict[str, float]) -> dict[str, Any]:
    from trainwright.storage import open_store

    run = run_folder(folder.name)
    export = StorageUri.parse(_export_uri(folder, request)).join(run_name(run))
    pointer = json.loads(open_store(export).read(LATEST))
    short = pointer["manifest"].partition(":")[2][:12]
    evaluated = folder.workspace / run / FOLDER / short
    evaluation = json.loads((evaluated / RESULT).read_bytes())
    history = training_state(evaluated / "checkpoint").get("log_history")
    before, after = loss_of(evaluation["before"]), loss_of(evaluation["after"])
    curve = _draw(history if isinstance(history, list) else [], folder.loss_curve, before=before, after=after)
    checkpoint = str(export.join(pointer["checkpoint"]))
    return collect_result(folder.name, evaluation, durations, checkpoint, pointer["manifest"], curve)


def _draw(history: list[dict[str, Any]], out: Path, *, before: float, after: float) -> str:
    """Draw the loss curve. Returns where it is, or why there is none."""
    from trainwright.evaluation.loss_curve import NoLoss, draw_loss_curve

    try:
        draw_loss_curve(history, out, before=before, after=after)
    except NoLoss:
        return "none: the training logged no loss; SETTINGS='{\"logging_steps\": 1}' logs that of each step"
    return str(out)
