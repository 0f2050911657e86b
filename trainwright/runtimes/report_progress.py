"""Lets a training with transformers' Trainer say at which step its figures were logged, and print all of them at its end.

The Trainer's own reports carry the step at which they are sent, not the one at which a loss was logged, and leave most losses out.
A training without a step fails: TRL's script for KTO would save the model as it was, and succeed.
It imports nothing from the package, because it runs in the image of the training program; `orderly_exit.py` runs it there.
"""

from __future__ import annotations

import base64
import json
import math
import os
import zlib
from typing import Any

HISTORY = "trainwright-history"
CHUNK_CHARACTERS = 2048  # so that a line is shorter than the limit for atomic writes to a pipe
MAX_ENTRIES = 5000  # of more, entries at equal distances are printed: about 300 KB
URGENT_REPORTS = 3  # of figures that are not finite, which do not wait for the interval between two reports
FIGURES = ("loss", "grad_norm")
SINCE, REPORTS = "_not_finite_since", "_not_finite_reports"  # names that the waiting client knows


PROGRAMS = ("trl", "transformers")
ENDED = "may_have_ended"  # a file beside this one, for a restarted pod of a job that has trained all steps


def install(module: str) -> None:
    """Extend the reports and the log of this process, which is to run a module; nothing is changed for other programs.

    Nor is it without transformers, or for versions that differ.
    """
    if module.partition(".")[0] not in PROGRAMS:
        return
    try:
        from transformers import trainer, trainer_callback
        from transformers.integrations import integration_utils
    except ImportError:  # the image has no transformers: the program says so itself
        return
    printer, reporter = trainer_callback.PrinterCallback, getattr(integration_utils, "KubeflowCallback", None)
    printer.on_log = _with_step(printer.on_log)  # type: ignore[method-assign]
    if reporter is not None and all(hasattr(reporter, name) for name in ("on_log", "on_step_end", "on_train_end")):
        _extend(reporter)
    modules: Any = trainer
    may_have_ended = os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), ENDED))
    modules.DEFAULT_CALLBACKS.append(_history_callback(trainer_callback.TrainerCallback, may_have_ended=may_have_ended))


def _with_step(print_logs: Any) -> Any:
    def on_log(self: Any, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> Any:
        return print_logs(self, args, state, control, logs=None if logs is None else {**logs, "step": state.global_step}, **more)

    return on_log


def _extend(reporter: Any) -> None:
    """Let reports have the step of their figures, be sent when these are logged, and count figures that are not finite."""
    on_train_end = reporter.on_train_end

    def on_log(self: Any, args: Any, state: Any, control: Any, logs: Any = None, **_more: Any) -> None:
        if not getattr(self, "_initialized", False) or not state.is_world_process_zero or not logs:
            return
        is_urgent = take_logs(self._metrics, logs, state.global_step)
        if is_urgent:
            self._last_update_time = -math.inf
        self.on_step_end(args, state, control)

    def on_end(self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
        if getattr(self, "_initialized", False):
            self._metrics.update(current_step=state.global_step, total_steps=state.max_steps)
        on_train_end(self, args, state, control, **more)

    reporter.on_log, reporter.on_train_end = on_log, on_end


def take_logs(metrics: dict[str, Any], logs: dict[str, Any], step: int) -> bool:
    """Add the numbers of one entry to the metrics to report. Returns whether they are to be reported at once.

    `step` is that of the training's figures, `eval_step` that of an evaluation's; those of the end have none.
    """
    numbers = {name: value for name, value in logs.items() if isinstance(value, int | float) and not isinstance(value, bool)}
    if any(name in numbers for name in FIGURES):
        numbers["step"] = step
    else:
        numbers.pop("epoch", None)
        if any(name.startswith("eval_") for name in numbers):
            numbers["eval_step"] = step
    metrics.update(numbers)
    is_urgent = False
    for name in FIGURES:
        if name not in numbers:
            continue
        if math.isfinite(numbers[name]):
            metrics.pop(name + SINCE, None)
            metrics.pop(name + REPORTS, None)
            continue
        metrics.setdefault(name + SINCE, step)
        metrics[name + REPORTS] = metrics.get(name + REPORTS, 0) + 1
        is_urgent = is_urgent or metrics[name + REPORTS] <= URGENT_REPORTS
    return is_urgent


def _history_callback(base: Any, *, may_have_ended: bool) -> Any:
    class PrintHistory(base):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
            if not may_have_ended:
                refuse_no_steps_left(state.global_step, state.max_steps)

        def on_train_end(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
            refuse_no_steps(state.global_step)
            if state.is_world_process_zero:
                for line in history_lines(state.log_history):
                    print(line, flush=True)

    return PrintHistory


def refuse_no_steps(steps: int) -> None:
    """Raise SystemExit for a training that has trained nothing. Resumed ones begin with the steps of their checkpoint."""
    if steps == 0:
        raise SystemExit(
            "no step was trained: no row is left to train on; check the rows, and whether prompts fit into max_length"
        )


def refuse_no_steps_left(step: int, steps: int) -> None:
    """Raise SystemExit for a training whose checkpoint is already at its end: it would train nothing, or one step too many."""
    if 0 < steps <= step:
        raise SystemExit(
            f"no step is left to train: the checkpoint is of step {step}, and the training ends with step {steps}; raise max_steps or "
            "num_train_epochs for more, set resume=weights:URI to begin again from its weights, or take the model as it is"
        )


def history_lines(log_history: list[dict[str, Any]]) -> list[str]:
    """Return the lines that carry these entries, the numbers of each with its step."""
    entries = [
        {name: value for name, value in entry.items() if isinstance(value, int | float) and not isinstance(value, bool)}
        for entry in log_history
        if "step" in entry
    ]
    every = math.ceil(len(entries) / MAX_ENTRIES) or 1
    kept = entries[(len(entries) - 1) % every :: every] if entries else []  # with the last one
    text = base64.b64encode(zlib.compress(json.dumps(kept).encode(), 9)).decode()
    chunks = [text[at : at + CHUNK_CHARACTERS] for at in range(0, len(text), CHUNK_CHARACTERS)]
    return [f"{HISTORY} {number}/{len(chunks)} {chunk}" for number, chunk in enumerate(chunks, 1)] if kept else []
