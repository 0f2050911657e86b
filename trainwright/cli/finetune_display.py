"""Shows a fine-tuning in a terminal: a line for each step with its duration, the progress of the training, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from trainwright.cli.output import print_lines
from trainwright.cli.progress_display import ProgressDisplay
from trainwright.evaluation.figures import loss_label, loss_of, relative_change, stop_line
from trainwright.jobs.submit.cluster_fit import MemoryEstimate
from trainwright.jobs.wait.job_events import JobEvents, LogOutput
from trainwright.steps.fine_tuning import FineTuned, verdict_of
from trainwright.text.foreign_texts import printable

_DETAILS = ("  {:<9} {}").format


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
