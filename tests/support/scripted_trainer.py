"""A program in the place of TRL's scripts, for tests of everything around a training: it needs 0.2 s and no torch.

It runs Trainwright's own launcher, `orderly_exit.py`, with modules in the place of those that the launcher changes
(scripted_libraries.py): umask, warm start, steps of reports, history and exit are those of production. It prints, reports and writes
what TRL does for supervised fine-tuning. It learns nothing: a loss is computed from step and learning rate, all adapters are zeros.
tests/checkpoints/test_warm_start_training.py compares it with TRL.

What it does not know ends it with status 2: options that are neither in `READ` nor, because they change nothing here, in `IGNORED`,
and keys of the configuration but `resume_from_checkpoint`. The configuration is JSON, as the init container `resume-point` writes it.

Imports nothing but the standard library and the file beside it, since both are copied to a folder that pods can read.
Usage: python scripted_trainer.py /resume/orderly_exit.py trl.scripts.sft --config /resume/trl.yaml [OPTIONS OF TRL]
TRAINER_SCRIPT, a JSON object, says what goes wrong: see `Script`.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import runpy
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from scripted_libraries import SCRIPTS, AdapterModel, Model, State, copy, install, safetensors_shapes

MORE_STEPS = 5
"""How far a training without --max_steps gets from where it starts. It logs each of these steps."""
BEST_RATE = 3.0
DIVERGES_AT = 1e20
LARGEST_LOSS = 10.0
SECONDS_TO_WAIT = 40.0
PREFERENCE = ("chosen", "rejected")
COLUMNS = {
    "sft": (("prompt", "completion"), ("messages",), ("text",)),
    "dpo": (PREFERENCE,),
    "kto": (("prompt", "completion", "label"), PREFERENCE),
}
"""The columns of rows of each method, in one of these forms."""
READ: dict[str, Any] = {
    **{"config": "", "model_name_or_path": "", "dataset_name": "", "output_dir": "", "eval_strategy": "no", "use_peft": False},
    **{"max_steps": -1, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "learning_rate": 2e-5},
    **{"logging_steps": 10.0, "save_steps": 500.0, "eval_steps": 500.0, "save_total_limit": 0, "logging_nan_inf_filter": True},
    **{"lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.05},
}
"""Options with TRL's defaults."""
IGNORED: dict[str, Any] = {
    **{"num_train_epochs": 3.0, "per_device_eval_batch_size": 8, "max_length": 1024, "seed": 42, "save_strategy": "steps"},
    **{"lora_target_modules": "all-linear", "report_to": "none", "disable_tqdm": False, "use_cpu": False, "bf16": True},
    **{"activation_checkpointing": True, "dataloader_pin_memory": True, "lr_scheduler_type": "linear", "warmup_steps": 0.0},
    **{"load_in_4bit": False, "use_bnb_nested_quant": False, "dtype": "float32"},
}
"""Options that the product or a test sends, and that change nothing here."""
REFERENCE = {"beta": 0.1, "precompute_ref_log_probs": False}
OWN: dict[str, dict[str, Any]] = {
    "sft": {},
    "dpo": {**REFERENCE, "loss_type": "sigmoid"},
    "kto": {**REFERENCE, "desirable_weight": 1.0, "undesirable_weight": 1.0},
}
"""More of those, of each method."""
VALUES = {
    "eval_strategy": ("no", "steps", "epoch"),
    "save_strategy": ("steps",),
    "lora_target_modules": ("all-linear",),
    "report_to": ("none",),
    "loss_type": ("sigmoid", "hinge", "ipo", "robust", "apo_zero", "apo_down", "sigmoid_norm"),
    "lr_scheduler_type": (
        *("linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt", "greedy"),
        *("reduce_lr_on_plateau", "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay"),
    ),
}


@dataclass(frozen=True)
class Script:
    """What a test wants to happen beside an ordinary training."""

    step_seconds: float = 0.0
    barrier: str = ""
    """A folder in which two jobs wait for each other before they train."""
    fails_while: str = ""
    """A file: as long as it exists, the training fails after its last checkpoint."""
    fails_with: Mapping[str, str] = field(default_factory=dict)
    """Options; with these values the training fails after its last checkpoint."""
    hangs_above: float = math.inf
    """An eval_loss above which the training does not end after its last report."""


def read_options(method: str, words: Sequence[str]) -> argparse.Namespace:
    """Read the command line. The process ends with status 2 if TRL, or this program, does not take it."""
    parser = argparse.ArgumentParser(
        usage="scripted_trainer.py LAUNCHER MODULE [OPTIONS OF TRL]", allow_abbrev=False, add_help=False
    )
    for name, default in {**READ, **IGNORED, **OWN[method]}.items():
        spellings = dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))
        if isinstance(default, bool):
            parser.add_argument(*spellings, dest=name, type=_truth, nargs="?", const=True, default=default)
        else:
            parser.add_argument(
                *spellings, dest=name, type=type(default), default=default, choices=VALUES.get(name), required=default == ""
            )
    options, unknown = parser.parse_known_args(words)
    if unknown:
        _do_not_know(unknown[0].partition("=")[0])
    return options


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _do_not_know(what: str) -> NoReturn:
    print(f"the scripted trainer does not know {what}", file=sys.stderr)
    raise SystemExit(2)


@dataclass(frozen=True)
class Ranks:
    """The processes of a training; this one plays all of its node."""

    node: int
    nodes: int
    per_node: int

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Ranks:
        per_node = environ.get("PET_NPROC_PER_NODE", "1")
        node = environ.get("PET_NODE_RANK") or environ.get("JOB_COMPLETION_INDEX") or "0"
        return cls(int(node), int(environ.get("PET_NNODES", "1")), int(per_node) if per_node.isdecimal() else 1)

    @property
    def count(self) -> int:
        return self.nodes * self.per_node

    @property
    def own(self) -> range:
        return range(self.node * self.per_node, (self.node + 1) * self.per_node)


class Trainer:
    """One training, from where its configuration tells it to start."""

    def __init__(self, method: str, words: Sequence[str], environ: Mapping[str, str]):
        self.words, self.environ, self.options = list(words), environ, read_options(method, words)
        self.ranks = Ranks.of(environ)
        self.script = Script(**json.loads(environ.get("TRAINER_SCRIPT") or "{}"))
        self.output, self.base = Path(self.options.output_dir), Path(self.options.model_name_or_path)
        self.base_config = (self.base / "config.json").read_text("utf-8")
        self.rows = _read_rows(Path(self.options.dataset_name), method, self.options.eval_strategy != "no")
        self.model = (AdapterModel if self.options.use_peft else Model)(self.base, self.options)
        if method != "sft":
            self.ref_model = None  # its name is what the launcher looks for
        resumed = _checkpoint_to_resume(Path(self.options.config))
        before = self._resume(resumed) if resumed else {"global_step": 0, "log_history": [], "max_steps": 1}
        self.start, self._steps_before = before["global_step"], before["max_steps"]
        batch = self.options.per_device_train_batch_size * self.options.gradient_accumulation_steps * self.ranks.count
        self.steps_of_epoch = math.ceil(len(self.rows.splitlines()) / batch)
        last = self.options.max_steps if self.options.max_steps > 0 else self.start + MORE_STEPS
        self.state = State(self.ranks.node == 0, self.start, last, before["log_history"], self.start / self.steps_of_epoch)
        self.eval_loss = abs(self.options.learning_rate - BEST_RATE)
        transformers: Any = sys.modules["transformers"]
        self._callbacks = [callback() for callback in transformers.trainer.DEFAULT_CALLBACKS]
        if environ.get("KUBEFLOW_TRAINER_SERVER_URL"):
            self._callbacks.append(sys.modules["transformers.integrations"].integration_utils.KubeflowCallback())

    def _resume(self, checkpoint: Path) -> dict[str, Any]:
        if self.model.shapes != (saved := safetensors_shapes(checkpoint / self.model.file)):
            differ = next(name for name in {**self.model.shapes, **saved} if self.model.shapes.get(name) != saved.get(name))
            raise SystemExit(f"size mismatch for {differ}: {saved.get(differ)} there, {self.model.shapes.get(differ)} here")
        state: dict[str, Any] = json.loads((checkpoint / "trainer_state.json").read_bytes())
        return state

    def train(self) -> None:
        self._meet()
        self._tell("on_train_begin")
        last, options = self.state.max_steps, self.options
        for step in range(self.start + 1, last + 1):
            time.sleep(self.script.step_seconds)
            self.state.global_step, self.state.epoch = step, step / self.steps_of_epoch
            self._tell("on_step_end")
            if options.max_steps <= 0 or _is_due(step, options.logging_steps):
                self._log(self._figures(step))
            every = self.steps_of_epoch if options.eval_strategy == "epoch" else options.eval_steps
            if options.eval_strategy != "no" and (step == last or _is_due(step, every)):
                self._log(self._evaluation())
            if step == last or _is_due(step, options.save_steps):
                self._save(step)
        losses = [self._loss(step) for step in range(self.start + 1, last + 1)]
        speed = {"train_runtime": 0.1, "train_samples_per_second": 1.0, "train_steps_per_second": 1.0, "total_flos": 1.0}
        self._log({**speed, "train_loss": sum(losses) / max(1, len(losses))})
        self._tell("on_train_end")

    def _meet(self) -> None:
        if self.script.barrier:
            barrier = Path(self.script.barrier)
            (barrier / self.environ["TRAINJOB_NAME"]).touch()
            _wait(lambda: len(list(barrier.iterdir())) >= 2, "the other job does not train at the same time")

    def _tell(self, event: str, **more: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, event)(self.options, self.state, None, **more)

    def _log(self, figures: dict[str, float]) -> None:
        logs = {**figures, "epoch": self.state.epoch}
        self.state.log_history.append({**logs, "step": self.state.global_step})
        self._tell("on_log", logs=logs)

    def _is_lost(self, step: int, after: int = 1) -> bool:
        """Whether a training that diverges has lost its figures: the first step makes the weights huge or NaN."""
        return self.options.learning_rate > DIVERGES_AT and step > after

    def _loss(self, step: int) -> float:
        # Without an adapter, weights become huge before they become NaN: the loss of step 2 is finite, its gradients are not.
        if self._is_lost(step, 1 if self.options.use_peft else 2):
            return 0.0 if self.options.logging_nan_inf_filter else math.nan
        return min(self.eval_loss, LARGEST_LOSS) + 1 / (step + 1)

    def _figures(self, step: int) -> dict[str, float]:
        # Until the first step of a resumed training has ended, the rate is the one that the checkpoint ended with.
        at, steps = (self.start, self._steps_before) if step == self.start + 1 else (step - 1, self.state.max_steps)
        return {
            "loss": self._loss(step),
            "grad_norm": math.nan if self._is_lost(step) else 1 / (step + 1),
            "learning_rate": self.options.learning_rate * max(0.0, 1 - at / steps),
            "entropy": 1.0,
            "mean_token_accuracy": 0.5,
            "num_tokens": 10.0 * (step - self.start),
        }

    def _evaluation(self) -> dict[str, float]:
        loss = math.nan if self.options.learning_rate > DIVERGES_AT else self.eval_loss
        speed = {"eval_runtime": 0.1, "eval_samples_per_second": 10.0, "eval_steps_per_second": 10.0}
        return {"eval_loss": loss, **speed, "eval_entropy": 1.0, "eval_mean_token_accuracy": 0.5, "eval_num_tokens": 10.0}

    def _save(self, step: int) -> None:
        """Write `checkpoint-STEP`: each node the states of its ranks, the first one the rest, and trainer_state.json last."""
        folder = self.output / f"checkpoint-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        if self.ranks.node == 0:
            self.write_model(folder)
            for name in ("optimizer.pt", "scheduler.pt"):
                (folder / name).write_bytes(torch_file())
        for rank in self.ranks.own:
            (folder / self._random_state(rank)).write_bytes(torch_file())
        if self.ranks.node != 0:
            return
        states = [folder / self._random_state(rank) for rank in range(self.ranks.count)]
        _wait(lambda: all(state.exists() for state in states), "the other nodes do not train")
        (folder / "trainer_state.json").write_text(json.dumps(self._saved_state()), "utf-8")
        found = sorted(self.output.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
        limit = self.options.save_total_limit
        for path in found[:-limit] if limit else []:
            if path != folder:
                shutil.rmtree(path)

    def _saved_state(self) -> dict[str, Any]:
        state, options = self.state, self.options
        return {
            **{name: getattr(state, name) for name in ("global_step", "epoch", "log_history")},
            "max_steps": state.max_steps + MORE_STEPS * self.status(),  # one that fails has steps left
            **{f"{name}_steps": getattr(options, f"{name}_steps") for name in ("logging", "save", "eval")},
            "num_train_epochs": math.ceil(state.max_steps / self.steps_of_epoch),
            "train_batch_size": options.per_device_train_batch_size,
            "best_metric": None,
            "scripted": {"rows": self.rows, "model": self.base_config, "start": self.start, "arguments": self.words},
        }

    def _random_state(self, rank: int) -> str:
        return "rng_state.pth" if self.ranks.count == 1 else f"rng_state_{rank}.pth"

    def write_model(self, folder: Path) -> None:
        """Write what `save_model` does: an adapter or the whole model, the tokenizer, and the arguments."""
        self.model.write(folder)
        if folder == self.output:
            (folder / "README.md").write_text(f"---\nbase_model: {self.base}\n---\n", "utf-8")
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            copy(self.base / name, folder)
        (folder / "training_args.bin").write_bytes(torch_file())

    def status(self) -> int:
        """Return the exit status of a training that has saved its model."""
        fails = self.script.fails_with and all(
            str(getattr(self.options, name)) == value for name, value in self.script.fails_with.items()
        )
        return int(bool(fails) or (bool(self.script.fails_while) and Path(self.script.fails_while).exists()))


def _read_rows(folder: Path, method: str, is_evaluated: bool) -> str:
    """Return the text of train.jsonl. Raises SystemExit for rows of a split that the method cannot use."""
    for split in ("train", "test"):
        path = folder / f"{split}.jsonl"
        if split == "test" and not path.exists() and not is_evaluated:
            break
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        if not rows:
            raise SystemExit(f"{path}: no rows")
        for number, row in enumerate(rows, 1):
            if not any(all(name in row for name in columns) for columns in COLUMNS[method]):
                raise SystemExit(f"{path}:{number}: {method} needs columns {COLUMNS[method]}")
    return (folder / "train.jsonl").read_text("utf-8")


def _checkpoint_to_resume(config: Path) -> Path | None:
    content = json.loads(config.read_text("utf-8"))
    if unknown := sorted(set(content) - {"resume_from_checkpoint"}):
        _do_not_know(f"{unknown[0]} of {config}")
    found = content.get("resume_from_checkpoint")
    return Path(found) if found else None


def torch_file() -> bytes:
    """A file in the format of `torch.save`, which is not to be loaded."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("archive/data.pkl", b"state")
    return content.getvalue()


def _is_due(step: int, every: float) -> bool:
    return step % max(1, int(every)) == 0


def _wait(condition: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + SECONDS_TO_WAIT
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(problem)
        time.sleep(0.02)


def train(method: str) -> NoReturn:
    """Do what a script of TRL does, under the launcher."""
    library: Any = sys.modules["transformers"]
    trainer: Trainer = library.Trainer(method, sys.argv[1:], os.environ)
    trainer.train()
    if trainer.eval_loss > trainer.script.hangs_above:
        time.sleep(300)
    if trainer.ranks.node == 0:
        print("✅ Training completed.", flush=True)
        trainer.write_model(trainer.output)
        print(f"💾 Model saved to {trainer.output}.", flush=True)
    raise SystemExit(trainer.status())


if __name__ == "__main__":
    del sys.argv[0]
    if sys.argv[1] not in [SCRIPTS + method for method in COLUMNS]:
        _do_not_know(sys.argv[1])
    install(Trainer, train)
    runpy.run_path(sys.argv[0], run_name="__main__")
