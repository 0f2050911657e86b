"""A real training with TRL starts from exported weights: its first loss is theirs, its steps and its learning rate start again.

The training whose weights these are is also compared with that of the scripted trainer, which many tests use in the place of TRL.
"""

from __future__ import annotations

import ast
import base64
import json
import math
import re
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.scripted_image import TRAINER
from support.trl_run import EXPORTED, Run, report_server

from trainwright.checkpoints.find import find_checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
HISTORY = "trainwright-history 1/1 "


@dataclass
class Trained:
    """A training that has ended: what it printed, and what it reported to the server of a cluster, in order."""

    run: Run
    printed: str
    reports: list[dict[str, Any]]


@pytest.fixture(scope="module")
def base(tiny_model: Path) -> Path:
    return tiny_model


def train(folder: Path, base: Path, method: str, *program: Path) -> Trained:
    with pytest.MonkeyPatch.context() as patch, report_server(patch, folder) as reports:
        run = Run(folder / "run", base, patch, program=program)
        printed = run.train(method=method, eval_strategy="steps", eval_steps=EXPORTED)
    return Trained(run, printed, reports)


@pytest.fixture(scope="module", params=["lora", "full"])
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def first(method: str, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(tmp_path_factory.mktemp(f"first-{method}"), base, method)


def test_scripted_trainer_writes_and_reports_like_trl(method: str, first: Trained, base: Path, tmp_path: Path) -> None:
    scripted = train(tmp_path, base, method, TRAINER)
    for found in (first, scripted):
        assert [(each.step, each.incomplete) for each in find_checkpoints(found.run.output)] == [(6, ""), (7, "")]
        check_figures(found)
        check_reports(found.reports)
        for step in (6, 7):
            check_order(found.run.output / f"checkpoint-{step}")
    assert files_of(scripted.run.output) == files_of(first.run.output)
    for step in (6, 7):
        assert state_of(scripted, step) == state_of(first, step)
    for folder in ("", "checkpoint-6", "checkpoint-7"):
        assert model_in(scripted.run.output / folder) == model_in(first.run.output / folder)
    assert lines_of(scripted.printed) == lines_of(first.printed)
    assert [progress(report) for report in ends_of(scripted)] == [progress(report) for report in ends_of(first)]
    assert len(scripted.reports) == 2


def check_figures(trained: Trained) -> None:
    """Histories, what is printed and what is reported agree, and losses and gradients are those of a training."""
    (payload,) = (line.removeprefix(HISTORY) for line in trained.printed.splitlines() if line.startswith(HISTORY))
    history = json.loads(zlib.decompress(base64.b64decode(payload)))
    state = read_state(trained, 7)
    assert history[:-1] == state["log_history"]
    assert read_state(trained, 6)["log_history"] == [entry for entry in history if entry["step"] <= 6]
    printed = [ast.literal_eval(line) for line in trained.printed.splitlines() if line.startswith("{'")]
    assert printed == [
        {name: value if name == "step" else f"{value:.4g}" for name, value in entry.items() if name != "total_flos"}
        for entry in history
    ]
    logged = [entry for entry in history if "loss" in entry]
    for name in ("loss", "grad_norm", "num_tokens"):
        assert all(math.isfinite(entry[name]) and entry[name] > 0 for entry in logged)
        assert len({entry[name] for entry in logged}) == len(logged)
    reported = {entry["name"]: entry["value"] for entry in trained.reports[-1]["metrics"]}
    of_evaluation = [entry for entry in history if "eval_loss" in entry][-1]
    assert reported == {
        **{name: str(value) for name, value in {**of_evaluation, **history[-1], **logged[-1]}.items()},
        **{"eval_step": "7", "current_step": "7", "total_steps": "7"},
    }


def check_reports(reports: list[dict[str, Any]]) -> None:
    """Between the first and the last there is one in five seconds, none in a short training, with the share of steps."""
    times = [datetime.fromisoformat(report["lastUpdatedTime"]) for report in reports]
    assert all(time.tzinfo is not None and abs(datetime.now(UTC) - time) < timedelta(hours=1) for time in times)
    assert all(later - earlier >= timedelta(seconds=4.9) for earlier, later in pairwise(times[:-1]))
    for report in reports[1:-1]:
        metrics = {entry["name"]: entry["value"] for entry in report["metrics"]}
        assert report["progressPercentage"] == min(99, int(int(metrics["current_step"]) / 7 * 100))
        assert {"current_epoch", "total_steps", "loss"} <= set(metrics)


def check_order(checkpoint: Path) -> None:
    """Weights come before the optimizer, this before the random states, and trainer_state.json is the last."""
    changed = {path.name: path.stat().st_mtime_ns for path in checkpoint.iterdir()}
    (weights,) = (name for name in changed if name.endswith(".safetensors"))
    order = [changed[name] for name in (weights, "training_args.bin", "optimizer.pt", "rng_state.pth", "trainer_state.json")]
    assert order == sorted(order)
    assert max(changed.values()) == changed["trainer_state.json"]


def files_of(output: Path) -> list[str]:
    return sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())


def read_state(trained: Trained, step: int) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((trained.run.output / f"checkpoint-{step}" / "trainer_state.json").read_bytes())
    return state


def state_of(trained: Trained, step: int) -> dict[str, Any]:
    """What Trainwright reads of the state of a checkpoint. Of a figure that depends on the weights or on the time, only its type."""
    state = read_state(trained, step)
    names = (
        "global_step",
        "epoch",
        "max_steps",
        "num_train_epochs",
        "train_batch_size",
        "logging_steps",
        "save_steps",
        "eval_steps",
    )
    history = [
        {name: round(value, 12) if name in ("step", "epoch", "learning_rate") else type(value) for name, value in entry.items()}
        for entry in state["log_history"]
    ]
    return {**{name: state[name] for name in (*names, "best_metric")}, "log_history": history}


def model_in(folder: Path) -> dict[str, Any]:
    """The configuration of a model or an adapter, and the types and shapes of its weights."""
    (weights,) = folder.glob("*.safetensors")
    with weights.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    tensors = {name: (entry["dtype"], entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
    if weights.name == "model.safetensors":
        return {"weights": tensors, "config": json.loads((folder / "config.json").read_bytes())}
    config = json.loads((folder / "adapter_config.json").read_bytes())
    names = ("peft_type", "task_type", "r", "lora_alpha", "lora_dropout", "bias", "base_model_name_or_path", "inference_mode")
    return {
        "weights": tensors,
        "target_modules": sorted(config["target_modules"]),
        **{name: config[name] for name in (*names, "use_rslora", "use_dora")},
    }


def lines_of(printed: str) -> list[str | list[str]]:
    """The lines that Trainwright reads: of figures their names, of the last ones their beginnings."""
    beginnings = (HISTORY, "✅ Training completed.", "💾 Model saved to ")
    found: list[str | list[str]] = []
    for line in printed.splitlines():
        if line.startswith("{'"):
            found.append(sorted(ast.literal_eval(line)))
        found += [beginning for beginning in beginnings if line.startswith(beginning)]
    return found


def ends_of(trained: Trained) -> list[dict[str, Any]]:
    """The first report and the last: how many there are between them depends on the time that the training takes."""
    return [trained.reports[0], trained.reports[-1]]


def progress(report: dict[str, Any]) -> dict[str, Any]:
    """The report, with the figures that count steps and the names of the others."""
    metrics = {entry["name"]: entry["value"] for entry in report["metrics"]}
    counts = {name: value if re.search("steps?$|^epoch$", name) else "" for name, value in metrics.items()}
    return {**report, "lastUpdatedTime": "", "metrics": counts}


def test_the_first_loss_is_that_of_the_exported_weights(
    tmp_path: Path, base: Path, method: str, first: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, history = first.run.export(), first.run.history(EXPORTED + 1)
    from_base, of_the_export = history[0]["loss"], history[EXPORTED]["loss"]
    assert of_the_export < from_base - 0.1
    second = Run(tmp_path / "second", base, monkeypatch)
    printed = second.train(f"weights:{uri}", method=method, steps=3, save_steps=3)
    started = second.history(3)
    assert [entry["step"] for entry in started] == [1, 2, 3]
    assert started[0]["loss"] == pytest.approx(of_the_export, abs=2e-4)
    assert started[0]["learning_rate"] == history[0]["learning_rate"]
    assert f"of {uri}; training starts at step 0" in printed
    assert started[2]["loss"] < started[0]["loss"]
    # The same job again, as in a restarted pod: it resumes from its own checkpoint.
    printed = second.train(f"weights:{uri}", method=method, steps=4, save_steps=4)
    assert "training starts at step 0" not in printed
    assert second.history(4)[:3] == started
    assert [entry["step"] for entry in second.history(4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("method", ["lora"], indirect=True)
def test_weights_that_do_not_fit_are_refused_before_the_first_step(
    tmp_path: Path, base: Path, first: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = first.run.export()
    second = Run(tmp_path / "second", base, monkeypatch)
    printed = second.train(f"weights:{uri}", expected=1, lora_rank=8, lora_alpha=16)
    assert f"cannot start from the weights of {uri}: the adapter does not fit" in printed
    assert "lora_alpha is 32 there and 16 here" in printed
    assert "other shapes (an adapter's rank is lora_rank): base_model." in printed
    printed = second.train(f"weights:{uri}", expected=1, method="full")
    assert "it is an adapter, but this run trains all weights; set method=lora" in printed
    assert not list(second.output.glob("checkpoint-*"))
