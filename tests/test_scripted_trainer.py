"""The scripted trainer fails where TRL does, and runs under Trainwright's launcher. Numbers are those that TRL 1.16 logged."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.ports import free_port
from support.scripted_image import SCRIPT, TRAINER
from support.scripted_libraries import safetensors
from support.trl_run import Run, report_server

from trainwright.checkpoints.find import find_checkpoints
from trainwright.jobs.state.progress import divergence_in
from trainwright.jobs.trainers.dpo import DpoTrainer

pytestmark = pytest.mark.medium
PAIR = {"prompt": "p", "chosen": "c", "rejected": "r"}
MakeRun = Callable[..., Run]


@pytest.fixture
def make_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeRun:
    """Makes a run of the scripted trainer in the folder of that name, with a model of one layer."""
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text("{}")
    shapes = {"model.embed_tokens.weight": [8, 4], "model.layers.0.q_proj.weight": [4, 4], "model.norm.weight": [4]}
    (base / "model.safetensors").write_bytes(safetensors(shapes))
    return lambda name="run", **more: Run(tmp_path / name, base, monkeypatch, program=[TRAINER], **more)


@pytest.fixture
def run(make_run: MakeRun) -> Run:
    return make_run()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--nosuch_option", "1"], "does not know --nosuch_option"),
        (["stray"], "does not know stray"),
        (["--max_steps", "many"], "invalid int value: 'many'"),
    ],
)
def test_options_that_trl_refuses_end_it_with_status_2(run: Run, words: Sequence[str], problem: str) -> None:
    assert problem in run.train(extra=words, expected=2)
    assert not list(run.output.glob("checkpoint-*"))


def test_resuming_and_rotation_are_those_of_trl(run: Run) -> None:
    run.train(steps=4, save_steps=4)
    run.train(steps=8, save_steps=2, save_total_limit=2)
    assert [each.step for each in find_checkpoints(run.output)] == [6, 8]
    history = run.history(8)
    assert [entry["step"] for entry in history] == [1, 2, 3, 4, 5, 6, 7, 8]
    # The first rate after resuming is the one that the first training ended with.
    rates = [0.003, 0.00225, 0.0015, 0.00075, 0.0, 0.001125, 0.00075, 0.000375]
    assert [entry["learning_rate"] for entry in history] == pytest.approx(rates)
    tokens = [entry["num_tokens"] / history[0]["num_tokens"] for entry in history]
    assert tokens == [1, 2, 3, 4, 1, 2, 3, 4]
    state = json.loads((run.output / "checkpoint-8/trainer_state.json").read_bytes())
    assert (state["global_step"], state["max_steps"], state["num_train_epochs"], state["epoch"]) == (8, 8, 8, 8.0)


@pytest.mark.parametrize(
    ("method", "options", "losses", "found"),
    [
        ("lora", ("--logging_nan_inf_filter", "False"), [True, False, False, False], "loss is nan since step 2"),
        ("full", ("--logging_nan_inf_filter", "False"), [True, True, False, False], "loss is nan since step 3"),
        ("full", ("--logging_nan_inf_filter", "True"), [True, True, 0.0, 0.0], "grad_norm is nan since step 2"),
    ],
)
def test_a_training_diverges_as_with_trl(
    run: Run, method: str, options: Sequence[str], losses: Sequence[float], found: str
) -> None:
    run.train(method=method, learning_rate=1e25, steps=4, save_steps=4, extra=options)
    history = run.history(4)
    assert [entry["loss"] and math.isfinite(entry["loss"]) for entry in history] == losses
    assert [math.isfinite(entry["grad_norm"]) for entry in history] == [True, False, False, False]
    divergence = divergence_in(history)
    assert divergence is not None
    assert divergence.describe().startswith(found)
    assert "the last finite value was" in divergence.describe()


def test_figures_that_are_not_finite_are_reported_at_once(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first three reports of them, whatever the interval: the launcher's own program changes that."""
    monkeypatch.setenv(SCRIPT, json.dumps({"step_seconds": 0.3}))
    with report_server(monkeypatch, tmp_path) as reports:
        run.train(learning_rate=1e25)
    assert [report["progressPercentage"] for report in reports] == [0, 28, 42, 57, 100]
    remaining = [report.get("estimatedRemainingSeconds", -1) for report in reports]
    assert (remaining[0], remaining[-1]) == (-1, 0)
    assert 1 <= remaining[1] <= 3, "five steps of 0.3 seconds"
    figures = {entry["name"]: entry["value"] for entry in reports[2]["metrics"]}
    assert (figures["loss"], figures["grad_norm"], figures["loss_not_finite_since"]) == ("nan", "nan", "2")
    assert figures["loss_not_finite_reports"] == "2"
    assert [figures[name] for name in ("step", "current_step", "total_steps", "current_epoch")] == ["3", "3", "7", "3.0"]


def test_a_report_that_fails_does_not_fail_the_training(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with report_server(monkeypatch, tmp_path) as reports:
        monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", f"http://127.0.0.1:{free_port()}/status")
        run.train()
    assert reports == []


def test_the_launcher_is_trainwrights(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its umask makes weights readable to others, which the libraries do not; its report program adds the history."""
    printed = run.train(steps=2)
    assert "trainwright-history 1/1 " in printed
    assert mode(run.output / "checkpoint-2/adapter_model.safetensors") == 0o600
    monkeypatch.setenv("TRAINWRIGHT_UMASK", "0002")
    before = os.umask(0o002)  # which deciding where to resume sets in this process
    try:
        run.train(steps=3)
    finally:
        os.umask(before)
    assert mode(run.output / "checkpoint-3/adapter_model.safetensors") == 0o664


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_weights_of_an_export_are_checked_by_the_launcher(run: Run, make_run: MakeRun) -> None:
    run.train()
    uri = run.export()
    printed = make_run("fits").train(f"weights:{uri}")
    assert f"the adapter is that of {uri}; training starts at step 0" in printed
    printed = make_run("differs").train(f"weights:{uri}", lora_rank=8, lora_alpha=16, expected=1)
    assert f"cannot start from the weights of {uri}: the adapter does not fit" in printed
    assert "lora_alpha is 32 there and 16 here; other shapes" in printed
    printed = make_run("full").train(f"weights:{uri}", method="full", expected=1)
    assert "it is an adapter, but this run trains all weights" in printed
    printed = make_run("dpo", trainer=DpoTrainer(), rows=[PAIR]).train(f"weights:{uri}", expected=1)
    assert "this training compares with a reference model" in printed


def test_all_weights_of_an_export_replace_the_model(run: Run, make_run: MakeRun) -> None:
    run.train(method="full")
    uri = run.export()
    second = make_run("second")
    assert f"all weights are those of {uri}; training starts at step 0" in second.train(f"weights:{uri}", method="full")
    state = json.loads((second.output / "checkpoint-6/trainer_state.json").read_bytes())
    assert str(run.base) not in state["scripted"]["arguments"]
    printed = make_run("adapter").train(f"weights:{uri}", expected=1)
    assert "it has all weights of a model, but this run trains an adapter" in printed
