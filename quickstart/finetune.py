"""`make finetune`: a language model fine-tuned through a pipeline or a DAG, on an embedded cluster of its own.

Order: run folder, control plane, base model, claim, pipeline, result. Ctrl-C suspends the training and stops everything;
the same command goes on from there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.errors import AlreadyExists, ApiError
from trainwright.api.kinds import CLAIM, TRAINJOB
from trainwright.checkpoints.hf_trainer import training_state
from trainwright.checkpoints.manifest import LATEST
from trainwright.controlplane.home import Home
from trainwright.controlplane.lifecycle import StartFailed, start, stop
from trainwright.evaluation.job import FOLDER, RESULT
from trainwright.jobs.cancel import suspend_job
from trainwright.jobs.identity import label_value
from trainwright.quickstart import airflow_run, kfp_run
from trainwright.quickstart.locks import last_of, share
from trainwright.quickstart.orchestrator import Orchestrator, Parameters
from trainwright.quickstart.run_folder import Request, RunError, RunFolder, open_run
from trainwright.quickstart.steps_view import StepsView
from trainwright.quickstart.summary import collect_result, show_summary
from trainwright.storage.uri import StorageUri

ORCHESTRATORS: dict[str, Orchestrator] = {"kfp": kfp_run.KFP, "airflow": airflow_run.AIRFLOW}
LEAST_FREE_BYTES = 512 * 1024 * 1024
DATA = Path(__file__).with_name("data") / "harbour.jsonl"
INTERRUPTED = 130
SAMPLE_ROW = 3
"""Of the shipped held-out rows: a plain question with a short answer."""
_BUILD = """
import sys
from pathlib import Path
from trainwright.quickstart.base_model import ensure_base_model
ensure_base_model(Path(sys.argv[1]), preset=sys.argv[2])
"""
# Chosen so that the shipped model learns visibly in about a minute on two cores.
QUICKSTART_SETTINGS = json.dumps(
    {
        "method": "lora",
        "steps": 500,
        "learning_rate": 2e-3,
        "batch_size": 4,
        "max_length": 128,
        "lora_rank": 32,
        "lora_alpha": 64,
        "save_steps": 50,
        "logging_steps": 5,
        "seed": 3,
        "cpu": True,
        "extra": ["--lr_scheduler_type", "cosine", "--warmup_steps", "10", "--lora_dropout", "0.0"],
    }
)
OTHER_SETTINGS = json.dumps({"method": "lora", "epochs": 1, "save_steps": 50, "logging_steps": 5})
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """What `make finetune` was told; empty values stand for the shipped data and model."""

    runs: Path
    name: str = ""
    model: str = ""
    dataset: str = ""
    export: str = ""
    settings: str = ""
    orchestrator: str = "kfp"
    nodes: int = 2
    keep: bool = False
    preset: str = "quickstart"


def finetune(options: Options, console: Console) -> int:
    """Run it; returns the exit status: 0, 1 (failed), 2 (bad input) or 130 (interrupted)."""
    began = time.monotonic()
    try:
        folder = _prepared_folder(options)
    except RunError as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        return 2
    if (result := folder.result()) is not None:
        console.print(f"Run {folder.name} has finished already.")
        show_summary(result, console)
        return 0
    console.print(f"[bold]Fine-tuning[/bold] in {folder.path}", highlight=False)
    mine = folder.take()
    if mine is None:
        console.print(f"[red]{folder.path} is being worked on by another command; wait for it, or choose another NAME[/red]")
        return 2
    home, users = Home(options.runs / ".home"), options.runs / ".in-use"
    user = share(users)
    with _orderly_signals():
        try:
            return _run(options, folder, home, console, began)
        except KeyboardInterrupt:
            console.print("\nStopping: the training is suspended; the same command goes on from its last checkpoint.")
            _suspend_all(home, folder)
            return INTERRUPTED
        except StartFailed as error:
            console.print(f"[red]{error}[/red]", highlight=False)
            return 1
        finally:
            if options.keep:
                console.print(f"The cluster keeps running: export KUBECONFIG={home.kubeconfig}", highlight=False, soft_wrap=True)
            elif (alone := last_of(users, user)) is not None:
                _stop_quietly(home, console)
                os.close(alone)
            os.close(mine)


def _run(options: Options, folder: RunFolder, home: Home, console: Console, began: float) -> int:
    starting = _Background(lambda: start(home))
    request = folder.request()
    assert request is not None
    model = request.model or str(StorageUri.of_path(_base_model(options, console)))
    starting.join()
    os.environ["KUBECONFIG"] = str(home.kubeconfig)  # never the user's own
    claim = f"finetune-{folder.name}"[:53]
    _make_claim(home, claim, folder.workspace)
    orchestrator = ORCHESTRATORS[request.orchestrator]
    with StepsView(folder.log, orchestrator.read) as view:
        succeeded = orchestrator.run(view, folder, _parameters(folder, request, model, claim))
    if view.nodes_started is not None:
        first = f", the first step {view.training_began - began:.1f} s" if view.training_began else ""
        console.print(
            f"  [dim]the nodes started {view.nodes_started - began:.1f} s after the start{first}[/dim]", highlight=False
        )
    if not succeeded:
        console.print(f"[red]The pipeline failed.[/red] The end of {folder.log}:", highlight=False)
        console.print(orchestrator.last_words(folder.log), markup=False, highlight=False, soft_wrap=True)
        return 1
    result = _collect(folder, request, view.durations)
    folder.finish(result)
    show_summary(result, console)
    console.print(f"[dim]{time.monotonic() - began:.1f} s in all[/dim]", highlight=False)
    return 0


def _prepared_folder(options: Options) -> RunFolder:
    if options.orchestrator not in ORCHESTRATORS:
        raise RunError(f"ORCHESTRATOR={options.orchestrator}: expected one of {', '.join(ORCHESTRATORS)}")
    request = Request(
        orchestrator=options.orchestrator,
        dataset=_as_uri(options.dataset) or shipped_dataset(),
        model=_as_uri(options.model),
        export=options.export,
        settings=options.settings or _default_settings(options),
        nodes=options.nodes,
    )
    try:
        options.runs.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(options.runs).free
        if free < LEAST_FREE_BYTES:
            raise RunError(f"{options.runs}: only {free // 2**20} MiB are free; a run needs {LEAST_FREE_BYTES // 2**20} MiB")
        return open_run(options.runs, options.name, request)
    except OSError as error:
        raise RunError(f"{error.filename or options.runs}: {error.strerror}") from error


def shipped_dataset() -> str:
    return str(StorageUri.of_path(DATA))


def _default_settings(options: Options) -> str:
    """The shipped model and data have settings of their own; others get TRL's, on the CPU where there is no GPU."""
    if not options.model and not options.dataset:
        return QUICKSTART_SETTINGS
    return json.dumps(json.loads(OTHER_SETTINGS) | {"cpu": shutil.which("nvidia-smi") is None})


def _as_uri(text: str) -> str:
    """A URI as it is, a path as a file URI."""
    return text if not text or "://" in text else str(StorageUri.of_path(Path(text).expanduser()))


def _base_model(options: Options, console: Console) -> Path:
    """The shipped base model, built on first use in a process of its own: torch need not stay in this one."""
    from trainwright.quickstart.base_model import model_folder

    folder = model_folder(options.runs / ".models", preset=options.preset)
    if not folder.is_dir():
        console.print("  building the base model (once, about a minute) ...", highlight=False)
        command = [sys.executable, "-c", _BUILD, str(folder.parent), options.preset]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=_quiet_environment())
        if done.returncode != 0:
            raise StartFailed(f"the base model could not be built: {done.stderr.strip()[-2000:]}")
    return folder.absolute()


def _quiet_environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def _make_claim(home: Home, name: str, workspace: Path) -> None:
    """The claim that the run works in is a folder of the run."""
    from trainwright.cluster import connect

    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {names.HOST_PATH_ANNOTATION: str(workspace.absolute())},
        },
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    cluster = connect(home.kubeconfig)
    try:
        cluster.create(claim)
    except AlreadyExists:
        cluster.patch(CLAIM, name, {"metadata": {"annotations": claim["metadata"]["annotations"]}}, "default")  # type: ignore[index]


def _parameters(folder: RunFolder, request: Request, model: str, claim: str) -> Parameters:
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"} if model.startswith("file://") else {}
    return Parameters(
        run=folder.name,
        dataset_uri=request.dataset,
        model_uri=model,
        export_uri=_export_uri(folder, request),
        workspace_claim=claim,
        workspace_path=str(folder.workspace.absolute()),
        num_nodes=request.nodes,
        settings=request.settings,
        env={**offline, "TOKENIZERS_PARALLELISM": "false"},
        sample_row=SAMPLE_ROW if request.dataset == shipped_dataset() else 0,
    )


def _export_uri(folder: RunFolder, request: Request) -> str:
    return request.export or str(StorageUri.of_path(folder.export))


def _collect(folder: RunFolder, request: Request, durations: dict[str, float]) -> dict[str, Any]:
    from trainwright.quickstart.loss_curve import draw_loss_curve
    from trainwright.storage import open_store

    export = _export_uri(folder, request)
    pointer = json.loads(open_store(export).read(LATEST))
    short = pointer["manifest"].partition(":")[2][:12]
    evaluated = folder.workspace / FOLDER / short
    evaluation = json.loads((evaluated / RESULT).read_bytes())
    history = training_state(evaluated / "checkpoint").get("log_history")
    before, after = evaluation["before"]["loss"], evaluation["after"]["loss"]
    draw_loss_curve(history if isinstance(history, list) else [], folder.loss_curve, before=before, after=after)
    checkpoint = str(StorageUri.parse(export).join(pointer["checkpoint"]))
    return collect_result(folder.name, evaluation, durations, checkpoint, pointer["manifest"], folder.loss_curve)


def _suspend_all(home: Home, folder: RunFolder) -> None:
    """Suspend the run's unfinished TrainJobs, so that they do not start by themselves when the cluster comes back."""
    from trainwright.cluster import NoCluster, connect

    if home.running() is None:
        return
    try:
        cluster = connect(home.kubeconfig)
        for trainjob in cluster.list(TRAINJOB, label_selector=f"{names.RUN_LABEL}={label_value(folder.name)}").items:
            if not is_finished(trainjob) and not trainjob["spec"].get("suspend"):
                suspend_job(cluster, trainjob)
    except (ApiError, NoCluster) as error:
        log.warning("the training could not be suspended error=%s", error)


def _stop_quietly(home: Home, console: Console) -> None:
    try:
        stop(home)
    except TimeoutError as error:
        console.print(f"[red]{error}[/red]", highlight=False)


@contextlib.contextmanager
def _orderly_signals() -> Iterator[None]:
    """SIGTERM acts as Ctrl-C does; a second Ctrl-C does not interrupt the stopping."""

    def interrupt(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Background:
    """A call in a thread, whose error comes out when it is joined."""

    def __init__(self, call: Any):
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Any) -> None:
        try:
            call()
        except BaseException as error:
            self._error = error

    def join(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error
