"""A program in the place of TRL's scripts, for tests of everything around a training: it needs 0.2 s and no torch.

It takes the command line of the runtimes `trl-*`, prints and reports what transformers' Trainer does, and writes folders with the same
files. It learns nothing: a loss is computed from step and learning rate, all adapters are zeros.
tests/checkpoints/test_warm_start_training.py compares it with TRL.

Imports nothing but the standard library, since it is copied to a folder that pods can read.
Usage: python scripted_trainer.py /resume/orderly_exit.py trl.scripts.sft --config /resume/trl.yaml [OPTIONS OF TRL]
TRAINER_SCRIPT, a JSON object, says what goes wrong: see `Script`.
"""

from __future__ import annotations

import io
import json
import math
import os
import runpy
import shutil
import ssl
import sys
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

SCRIPT = "TRAINER_SCRIPT"
MORE_STEPS = 5
"""How far a training without --max_steps gets from where it starts. It logs each of these steps."""
BEST_RATE = 3.0
DIVERGES_AT = 1e20
SECONDS_BETWEEN_REPORTS = 5.0
SECONDS_TO_WAIT = 40.0
KNOWN = "scripted"
"""Key of trainer_state.json: what this program read, for tests to look at."""


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


class Options:
    """The command line: options by name, without their dashes. Those of the last mention count, as for argparse."""

    def __init__(self, words: Sequence[str]):
        self.words = list(words)
        self._values = dict(_pairs(words))

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def number(self, name: str, default: float) -> float:
        return float(self._values.get(name, default))

    def path(self, name: str) -> Path:
        return Path(self._values[name])


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word, following in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            yield word[2:], "" if following.startswith("--") else following


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


class Training:
    """One training, from where its configuration tells it to start."""

    def __init__(self, launcher: Path, words: Sequence[str], environ: Mapping[str, str]):
        self.options, self.environ = Options(words), environ
        self.resume_folder = launcher.parent
        self.ranks = Ranks.of(environ)
        self.script = Script(**json.loads(environ.get(SCRIPT) or "{}"))
        self.output, self.model = self.options.path("output_dir"), self.options.path("model_name_or_path")
        self.rows = (self.options.path("dataset_name") / "train.jsonl").read_text("utf-8")
        config = json.loads(self.options.path("config").read_text("utf-8"))
        self.resumed = Path(config["resume_from_checkpoint"]) if config.get("resume_from_checkpoint") else None
        self.start = int(self.resumed.name.rpartition("-")[2]) if self.resumed else 0
        self.history: list[dict[str, Any]] = []
        if self.resumed:
            self.history = json.loads((self.resumed / "trainer_state.json").read_bytes())["log_history"]
        self.rate = self.options.number("learning_rate", 2e-4)
        self.eval_loss = math.nan if self.rate > DIVERGES_AT else abs(self.rate - BEST_RATE)
        self.reporter = Reporter(environ)

    @cached_property
    def last_step(self) -> int:
        given = int(self.options.number("max_steps", 0))
        return given if given > 0 else self.start + MORE_STEPS

    @cached_property
    def steps_of_epoch(self) -> int:
        batch = self.options.number("per_device_train_batch_size", 8) * self.options.number("gradient_accumulation_steps", 1)
        return max(1, math.ceil(len(self.rows.splitlines()) / (batch * self.ranks.count)))

    def run(self) -> int:
        """Train to the last step. Returns the exit status."""
        self._tell_start()
        self._meet()
        if self.ranks.node == 0:
            self.reporter.begin(self.last_step)
        for step in range(self.start + 1, self.last_step + 1):
            time.sleep(self.script.step_seconds)
            if not self.options.number("max_steps", 0) or _is_due(step, self.options.number("logging_steps", 10)):
                self._log(step, self._figures(step))
            if self._is_evaluated(step):
                self._log(step, {**self._evaluation(), "epoch": step / self.steps_of_epoch})
            if step == self.last_step or _is_due(step, self.options.number("save_steps", 500)):
                self._save(step)
        self._end()
        return self._status()

    def _tell_start(self) -> None:
        instructions = self.resume_folder / "load_weights.json"
        if instructions.exists():
            weights = json.loads(instructions.read_bytes())
            what = "all weights are those" if weights["kind"] == "model" else "the adapter is that"
            print(f"{what} of {weights['uri']}; training starts at step 0", flush=True)

    def _meet(self) -> None:
        if self.script.barrier:
            barrier = Path(self.script.barrier)
            (barrier / self.environ["TRAINJOB_NAME"]).touch()
            _wait(lambda: len(list(barrier.iterdir())) >= 2, "the other job does not train at the same time")

    def _figures(self, step: int) -> dict[str, float]:
        left = 1 - (step - 1) / self.last_step
        return {
            "loss": self.eval_loss + 1 / (step + 1),
            "grad_norm": math.nan if math.isnan(self.eval_loss) else 1 / (step + 1),
            "learning_rate": self.rate * left,
            "entropy": 1.0,
            "mean_token_accuracy": 0.5,
            "num_tokens": 10.0 * step,
            "epoch": step / self.steps_of_epoch,
        }

    def _is_evaluated(self, step: int) -> bool:
        strategy = self.options.text("eval_strategy", "no")
        every = self.steps_of_epoch if strategy == "epoch" else self.options.number("eval_steps", 500)
        return strategy != "no" and (_is_due(step, every) or step == self.last_step)

    def _evaluation(self) -> dict[str, float]:
        speed = {"eval_runtime": 0.1, "eval_samples_per_second": 10.0, "eval_steps_per_second": 10.0}
        learned = {"eval_entropy": 1.0, "eval_mean_token_accuracy": 0.5, "eval_num_tokens": 10.0}
        return {"eval_loss": self.eval_loss, **speed, **learned}

    def _log(self, step: int, figures: dict[str, float]) -> None:
        self.history.append({**figures, "step": step})
        if self.ranks.node == 0:
            self._print(step, figures)
            self.reporter.progress(step, self.last_step, step / self.steps_of_epoch, figures)

    def _print(self, step: int, figures: dict[str, float]) -> None:
        """Print one line, as transformers does with Trainwright's addition of the step."""
        shown = {name: f"{value:.4g}" for name, value in figures.items() if name != "total_flos"}
        print({**shown, "step": step}, flush=True)

    def _end(self) -> None:
        if self.ranks.node != 0:
            return
        speed = {"train_runtime": 0.1, "train_samples_per_second": 1.0, "train_steps_per_second": 1.0, "total_flos": 1.0}
        self._log(self.last_step, {**speed, "train_loss": self.eval_loss, "epoch": self.last_step / self.steps_of_epoch})
        progress = self.resume_folder / "report_progress.py"
        if progress.exists():
            for line in runpy.run_path(str(progress))["history_lines"](self.history):
                print(line, flush=True)
        self.reporter.end(self.last_step)
        if self.eval_loss > self.script.hangs_above:
            time.sleep(300)
        self._write_model(self.output)
        print(f"✅ Training completed.\n💾 Model saved to {self.output}.", flush=True)

    def _status(self) -> int:
        fails = self.script.fails_with and all(self.options.text(name) == value for name, value in self.script.fails_with.items())
        return int(bool(fails) or (bool(self.script.fails_while) and Path(self.script.fails_while).exists()))

    def _save(self, step: int) -> None:
        """Write `checkpoint-STEP`: each node the states of its ranks, the first one the rest, and trainer_state.json last."""
        folder = self.output / f"checkpoint-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        for rank in self.ranks.own:
            (folder / self._random_state(rank)).write_bytes(torch_file())
        if self.ranks.node != 0:
            return
        self._write_model(folder)
        for name in ("optimizer.pt", "scheduler.pt"):
            (folder / name).write_bytes(torch_file())
        states = [folder / self._random_state(rank) for rank in range(self.ranks.count)]
        _wait(lambda: all(state.exists() for state in states), "the other nodes do not train")
        known = {
            "rows": self.rows,
            "model": (self.model / "config.json").read_text("utf-8"),
            "start": self.start,
            "arguments": self.options.words,
        }
        state = {
            "global_step": step,
            "max_steps": self.last_step,
            "epoch": step / self.steps_of_epoch,
            "log_history": self.history,
        }
        (folder / "trainer_state.json").write_text(json.dumps({**state, KNOWN: known}), "utf-8")
        self._rotate(step)

    def _random_state(self, rank: int) -> str:
        return "rng_state.pth" if self.ranks.count == 1 else f"rng_state_{rank}.pth"

    def _write_model(self, folder: Path) -> None:
        """Write what `save_model` does: an adapter or the whole model, the tokenizer, and the arguments."""
        if "use_peft" in self.options:
            rank = int(self.options.number("lora_r", 16))
            (folder / "README.md").write_text(f"---\nbase_model: {self.model}\n---\n", "utf-8")
            (folder / "adapter_config.json").write_text(json.dumps(self._adapter_config(rank)), "utf-8")
            (folder / "adapter_model.safetensors").write_bytes(safetensors(adapter_shapes(self.model, rank)))
        else:
            for name in ("config.json", "generation_config.json", "model.safetensors"):
                _copy(self.model / name, folder)
            if folder == self.output:
                (folder / "README.md").write_text("", "utf-8")
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            _copy(self.model / name, folder)
        (folder / "training_args.bin").write_bytes(torch_file())
        if (umask := self.environ.get("TRAINWRIGHT_UMASK")) is not None:
            for path in folder.glob("*.safetensors"):
                path.chmod(0o666 & ~int(umask, 8))

    def _adapter_config(self, rank: int) -> dict[str, Any]:
        layers = sorted({name.removeprefix(PREFIX).rpartition(".lora_")[0] for name in adapter_shapes(self.model, rank)})
        kind = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": str(self.model), "inference_mode": True}
        alpha = int(self.options.number("lora_alpha", 32))
        return {**kind, "r": rank, "lora_alpha": alpha, "lora_dropout": 0.0, "bias": "none", "target_modules": layers}

    def _rotate(self, step: int) -> None:
        """Delete the oldest checkpoints beyond --save_total_limit."""
        limit = int(self.options.number("save_total_limit", 0))
        found = sorted((path for path in self.output.glob("checkpoint-*")), key=lambda path: int(path.name.rpartition("-")[2]))
        for path in found[:-limit] if limit else []:
            if path.name != f"checkpoint-{step}":
                shutil.rmtree(path)


class Reporter:
    """Sends what transformers' KubeflowCallback does, if the pod has its address: at the start, every five seconds, at the end."""

    def __init__(self, environ: Mapping[str, str]):
        self._url = environ.get("KUBEFLOW_TRAINER_SERVER_URL", "")
        self._token, self._authority = (environ.get(f"KUBEFLOW_TRAINER_SERVER_{name}", "") for name in ("TOKEN", "CA_CERT"))
        self._metrics: dict[str, float] = {}
        self._sent = -math.inf

    def begin(self, last_step: int) -> None:
        self._send(0, {"total_steps": last_step})

    def progress(self, step: int, last_step: int, epoch: float, figures: dict[str, float]) -> None:
        """Take the figures of a step, and send them unless others were sent within five seconds."""
        if "loss" in figures:
            self._metrics.update({**figures, "step": step})
        else:
            self._metrics.update({name: value for name, value in figures.items() if name != "epoch"})
        if "eval_loss" in figures:
            self._metrics["eval_step"] = step
        if time.monotonic() - self._sent >= SECONDS_BETWEEN_REPORTS or math.isnan(figures.get("loss", 0.0)):
            own = {"current_step": step, "total_steps": last_step, "current_epoch": round(epoch, 2)}
            self._send(min(99, step * 100 // last_step), {**self._metrics, **own})

    def end(self, last_step: int) -> None:
        self._send(100, {**self._metrics, "current_step": last_step, "total_steps": last_step})

    def _send(self, percent: int, metrics: dict[str, Any]) -> None:
        if not self._url:
            return
        self._sent = time.monotonic()
        told = [{"name": name, "value": str(value)} for name, value in metrics.items()]
        status = {"lastUpdatedTime": datetime.now(UTC).isoformat(), "progressPercentage": percent, "metrics": told}
        headers = {"Authorization": f"Bearer {Path(self._token).read_text('utf-8')}", "Content-Type": "application/json"}
        body = json.dumps({"trainerStatus": status}).encode()
        request = urllib.request.Request(self._url, body, headers, method="POST")
        context = ssl.create_default_context(cafile=self._authority) if self._authority else None
        urllib.request.urlopen(request, timeout=5, context=context).read()


PREFIX = "base_model.model."
"""Of the names of an adapter's weights, before the name that the model gives to the layer."""


def adapter_shapes(model: Path, rank: int) -> dict[str, list[int]]:
    """The shapes of a LoRA adapter of rank `rank` on all linear layers but the head, by the names that PEFT gives them."""
    found: dict[str, list[int]] = {}
    for name, shape in sorted(safetensors_shapes(model / "model.safetensors").items()):
        layer = name.removesuffix(".weight")
        if len(shape) == 2 and not layer.endswith(("embed_tokens", "lm_head")):
            found[f"{PREFIX}{layer}.lora_A.weight"] = [rank, shape[1]]
            found[f"{PREFIX}{layer}.lora_B.weight"] = [shape[0], rank]
    return found


def safetensors_shapes(path: Path) -> dict[str, list[int]]:
    """The shapes of the tensors of a file, by name."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


def safetensors(shapes: Mapping[str, Sequence[int]]) -> bytes:
    """A file of float32 zeros."""
    header, at = dict[str, Any](), 0
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(at)


def torch_file() -> bytes:
    """A file in the format of `torch.save`, which is not to be loaded."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("archive/data.pkl", b"state")
    return content.getvalue()


def _is_due(step: int, every: float) -> bool:
    return step % max(1, int(every)) == 0


def _copy(path: Path, folder: Path) -> None:
    if path.exists():
        shutil.copyfile(path, folder / path.name)


def _wait(condition: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + SECONDS_TO_WAIT
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(problem)
        time.sleep(0.02)


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """`arguments`: the launcher's path, TRL's module, its options. Returns the exit status."""
    if (umask := environ.get("TRAINWRIGHT_UMASK")) is not None:
        os.umask(int(umask, 8))
    launcher, _module, *words = arguments
    return Training(Path(launcher), words, environ).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
