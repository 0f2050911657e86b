"""Runs `trainwright finetune`, from its options to its outcome, and shows it. It imports the steps, which no other command needs.

A terminal shows a line for each step with its duration, the progress of the training, and what came of it.
"""

from __future__ import annotations

import logging
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from trainwright.api.errors import BadRequest
from trainwright.cli.connection import jobs_cluster_for, selected_home
from trainwright.cli.errors import bad_input_exits, cluster_errors_exit, fail
from trainwright.cli.finetune_options import PREFERENCES, Method
from trainwright.cli.output import print_lines, print_object
from trainwright.cli.page_link import home_of, page_line
from trainwright.cli.request_options import parsed_mapping
from trainwright.cli.waiting import ProgressDisplay
from trainwright.evaluation.figures import loss_label, loss_of, relative_change, stop_line
from trainwright.initializers.data_report import report
from trainwright.initializers.errors import InitializerError
from trainwright.jobs.diagnosis.errors import Cancelled, Diverged, TrainJobNameTaken
from trainwright.jobs.diagnosis.exit_codes import ExitCode, exit_code_of
from trainwright.jobs.request.invalid_settings import message_of
from trainwright.jobs.state.identity import COMMAND_LINE, new_run_id
from trainwright.jobs.submit.cluster_fit import MemoryEstimate
from trainwright.jobs.wait.job_events import JobEvents, LogOutput
from trainwright.steps.data.places import place_uri, source_uri
from trainwright.steps.ends.step_end import EXPECTED
from trainwright.steps.fine_tuning import FineTuned, fine_tune, verdict_of
from trainwright.steps.fine_tuning_defaults import (
    GPU,
    default_exports,
    default_workspace,
    gpus_of_nodes,
    with_secrets,
    without_gpu,
)
from trainwright.steps.requests import FineTuning
from trainwright.submission.jobs_client import JobsClient
from trainwright.text.foreign_texts import printable

_ADVISED = (
    (r"builtin=(dpo|kto)\b", r"--method \1"),
    (r"columns=(?=\{)", "--data columns="),
    (r"num_nodes=(?=\d)", "--nodes "),
    (r"(placement\.memory_check|limits\.(?:fail_on_divergence|job_retries|restarts))=(?=\w)", r"--training \1="),
    (r"(report_mode|layout|split)=(?=[\w-]+)", r"--data \1="),
)
"""Settings that messages of steps advise, and the options that set them."""
_DETAILS = ("  {:<9} {}").format


def run_finetune(given: Mapping[str, Any]) -> None:
    """Do what the command was given, its parameters by name. Raises typer.Exit after a failure."""
    output = given["output"]
    with cluster_errors_exit():
        with bad_input_exits():
            sources = {name: source_uri(given[name]) for name in ("model", "dataset")}
            structures = {name: parsed_mapping(f"--{name}", given[name] or []) for name in ("training", "data", "evaluation")}
            given = {**given, **sources, **structures}
        cluster = jobs_cluster_for(given["kubeconfig"], given["home"], given["submission_mode"])
        run, namespace = given["run_id"] or new_run_id(), given["namespace"] or cluster.default_namespace
        with bad_input_exits():
            request = _request(cluster, given, cluster.is_embedded())
    home = selected_home(given["kubeconfig"], given["home"]) or home_of(given["kubeconfig"])
    if home is not None and (line := page_line(home, is_terminal=sys.stderr.isatty())):
        print_lines(line, error=True)
    display = ChainDisplay(Console(stderr=output is not None, markup=False, emoji=False), with_logs=given["logs"])
    logging.getLogger(report.__name__).setLevel(logging.ERROR)  # the display shows the verdict
    resume = f"to resume, run the command again with --run-id {shlex.quote(run)}"
    try:
        with display:
            result = fine_tune(
                cluster,
                request,
                owner=COMMAND_LINE,
                run_id=run,
                namespace=namespace,
                watcher=display,
                trackers=given["tracking"] or (),
            )
    except KeyboardInterrupt:
        fail(f"interrupted; {resume}", int(ExitCode.interrupted))
    except Cancelled as error:
        fail(f"{error}; {resume}", int(ExitCode.interrupted))
    except EXPECTED as error:
        if display.result is not None and output is None:
            show_result(display.result)
        code = ExitCode.bad_input if isinstance(error, InitializerError) else exit_code_of(error)
        message = f"{display.step}: {_in_options(message_of(error))}".removeprefix(": ")
        print_lines("\n".join([message, *getattr(error, "__notes__", ())]), error=True)
        # The same command cannot resume a run that began with other inputs, that another owner has, or that would diverge again.
        is_over = code is ExitCode.bad_input or isinstance(error, TrainJobNameTaken | Diverged)
        if display.step not in ("", "start") and not is_over:
            print_lines(resume, error=True)
        raise typer.Exit(int(code)) from None
    if output is not None:
        print_object(asdict(result), output)
    else:
        show_result(result)
    sys.stdout.flush()


def _in_options(message: str) -> str:
    """Return a message with settings that it advises as this command takes them."""
    for setting, option in _ADVISED:
        message = re.sub(rf"(?<![-\w]){setting}", option, message)
    return message


def _request(cluster: JobsClient, given: Mapping[str, Any], is_here: bool) -> FineTuning:
    """Return what is asked of the chain. Raises BadRequest, and ValueError naming the setting."""
    workspace = given["workspace"] or default_workspace(is_here=is_here)
    method, training = given["method"], given["training"]
    settings = training.get("settings") or {}
    if not isinstance(settings, dict):
        raise BadRequest("--training: settings: expected an object with settings by name")
    if method is not None and method in PREFERENCES:
        if training.get("builtin", method.value) != method.value:
            raise BadRequest(f"--method {method.value}: not with --training builtin={training['builtin']}")
        training = {**training, "builtin": method.value}
    gpus = _gpus(cluster, given["gpus"])
    if not gpus and "cpu" not in settings and Method.qlora in (method, settings.get("method")):
        raise BadRequest("--method qlora: needs a GPU, and no node has one; use --method lora")
    training = with_secrets(training, {name: given[name] for name in ("store_secret", "hub_secret")})
    if not gpus:
        training = without_gpu(training)
    export = _export(given["export"], is_here, reads=bool(given["promote"] or given["registry"]))
    for name in ("model", "dataset"):
        if given[name].startswith("file://") and not is_here:
            raise BadRequest(
                f"{name}: {given[name]}: pods of the cluster do not see this machine's files; copy it to an object store"
            )
    return FineTuning.parse(
        {
            "model_uri": given["model"],
            "dataset_uri": given["dataset"],
            "export_uri": export,
            "workspace": workspace,
            "num_nodes": given["nodes"] or (0 if "num_nodes" in training else 1),
            # One that nobody asked for would contradict those of the training.
            "resources_per_node": {GPU: gpus} if gpus and (given["gpus"] or "resources_per_node" not in training) else {},
            "method": "" if method is None or method in PREFERENCES else method.value,
            "training": training,
            **{name: given[name] for name in ("data", "evaluation")},
            **{name: given[name] for name in ("epochs", "learning_rate", "batch_size", "max_length", "queue_name")},
            **{name: given[name] for name in ("promote", "registry")},
        }
    )


def _gpus(cluster: JobsClient, asked: int | None) -> int:
    if asked is not None:  # a number that was given counts, also 0
        return asked
    found = gpus_of_nodes(cluster)
    if found is None:
        raise BadRequest(
            "--gpus: the nodes of the cluster cannot be listed; say how many GPUs each node has, 0 to train on the CPU"
        )
    return found


def _export(given: str, is_here: bool, *, reads: bool) -> str:
    """Return the URI of the folder of exports; by default it is on the workspace.

    Raises BadRequest if this machine `reads` them, cannot, and no other folder is named.
    """
    if given:
        return place_uri(given)
    if reads and not is_here:
        raise BadRequest("--promote, --registry: this machine must reach the exports; set --export to an object store")
    return default_exports(is_here=is_here)


class ChainDisplay:
    """A context manager, and the watcher of a chain."""

    def __init__(self, console: Console, *, with_logs: bool = False):
        self._console, self._with_logs = console, with_logs
        self._training: ProgressDisplay | None = None
        self._began = 0.0
        self.step = ""
        """The step that is being done, or has failed."""
        self.result: FineTuned | None = None
        """What came of the steps up to the evaluation."""

    def __enter__(self) -> ChainDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_training()

    def begin(self, step: str) -> None:
        self.step, self._began = step, time.monotonic()
        if step == "train":
            self._training = ProgressDisplay(self._console)
            self._training.__enter__()

    def end(self, step: str, note: str) -> None:
        self._end_training()
        self._print(f"{step:<9} {time.monotonic() - self._began:7.1f} s  {note}".rstrip())

    def line(self, text: str) -> None:
        if self._with_logs:
            self._print(_DETAILS("", text))

    def events(self, events: JobEvents) -> None:
        if self._training is not None:
            self._training(events if self._with_logs else tuple(event for event in events if not isinstance(event, LogOutput)))

    def verdict(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._print(f"{'verdict':<9} {line}", "yellow")

    def evaluated(self, result: FineTuned) -> None:
        self.result = result

    def estimate(self, estimate: MemoryEstimate) -> None:
        self._print(f"memory    {'' if estimate.fits else 'warning: '}{estimate}", "" if estimate.fits else "yellow")

    def _end_training(self) -> None:
        if self._training is not None:
            self._training.__exit__(None, None, None)
            self._training = None

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(printable(text), style=style or None, highlight=False, soft_wrap=True)


def show_result(result: FineTuned) -> None:
    """Print the losses before and after, and where everything is."""
    before, after = (loss_of(result.evaluation[when]) for when in ("before", "after"))
    table = Table(show_header=True, header_style="bold")
    for column in ("", "base model", "fine-tuned"):
        table.add_column(column)
    change = relative_change(before, after, decimals=1)
    table.add_row(loss_label(result.evaluation), f"{before:.4f}", f"{after:.4f}{f'  ({change})' if change else ''}")
    if all(ends := [stop_line(result.evaluation.get("samples"), when) for when in ("before", "after")]):
        table.add_row("samples", *ends)
    Console(markup=False, emoji=False, highlight=False).print(table)
    for label, text in (
        ("run", result.run_id),
        ("checkpoint", f"{result.checkpoint['uri']} ({result.checkpoint['digest']})"),
        ("merged", str(result.checkpoint.get("merged_uri") or "")),
        ("summary", result.summary),
        ("loss curve", result.loss_curve),
    ):
        if text:
            print_lines(f"{label:<11} {text}")
    if after > before:
        print_lines(f"{'warning':<11} the fine-tuned model predicts these rows worse than the base model")
    for line in verdict_of(result.dataset):
        print_lines(f"{'dataset':<11} {line}")
