"""The scripted trainer fails where TRL does, and runs under Trainwright's launcher. Numbers are those that TRL 1.16 logged."""

from __future__ import annotations

import json
import math
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.ports import free_port
from support.scripted_image import SCRIPT, TRAINER
from support.scripted_libraries import safetensors
from support.trl_run import SFT, Run, report_server
from support.waiting import eventually

from trainwright.checkpoints.find import find_checkpoints
from trainwright.jobs.state.divergence import divergence_in
from trainwright.jobs.trainers.dpo import DpoTrainer
from trainwright.jobs.trainers.kto import KtoTrainer

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
        (["--max_stepz=2"], "does not know --max_stepz"),
        (["--max_step", "2"], "does not know --max_step"),
        (["--beta", "0.1"], "does not know --beta"),
        (["stray"], "does not know stray"),
        (["--lr_scheduler_type", "nosuch"], "invalid choice: 'nosuch'"),
        (["--save_strategy", "epoch"], "invalid choice: 'epoch'"),
        (["--max_steps", "many"], "invalid int value: 'many'"),
        (["--seed"], "expected one argument"),
        (["--bf16", "perhaps"], "invalid _truth value: 'perhaps'"),
    ],
)
def test_options_that_trl_refuses_end_it_with_status_2(run: Run, words: Sequence[str], problem: str) -> None:
    assert problem in run.train(extra=words, expected=2)
    assert not list(run.output.glob("checkpoint-*"))


@pytest.mark.parametrize("option", ["--max_steps=2", "--max-steps=2"])
def test_options_are_read_in_the_forms_of_trl(run: Run, option: str) -> None:
    run.train(extra=[option])
    assert [each.step for each in find_checkpoints(run.output)] == [2]


def test_other_modules_and_configurations_are_refused(run: Run, tmp_path: Path) -> None:
    run.trainer = SimpleNamespace(script="trl.scripts.grpo", settings=SFT.settings)  # type: ignore[assignment]
    assert "does not know trl.scripts.grpo" in run.train(expected=2)
    run.trainer, more = SFT, tmp_path / "more.yaml"
    more.write_text('{"seed": 1}')
    assert f"does not know seed of {more}" in run.train(extra=["--config", str(more)], expected=2)


@pytest.mark.parametrize(
    ("trainer", "train", "test", "settings", "problem"),
    [
        (SFT, "no JSON\n", None, {}, "JSONDecodeError"),
        (SFT, "", None, {}, "train.jsonl: no rows"),
        (SFT, '{"text": "t"}\n{"words": "t"}\n', None, {}, "train.jsonl:2: sft needs columns"),
        (SFT, '{"text": "t"}\n', "no JSON\n", {}, "JSONDecodeError"),
        (SFT, '{"text": "t"}\n', None, {"eval_strategy": "steps"}, "test.jsonl"),
        (SFT, json.dumps(PAIR), None, {}, "sft needs columns"),
        (DpoTrainer(), '{"prompt": "p", "completion": "c"}\n', None, {}, "dpo needs columns"),
        (KtoTrainer(), '{"prompt": "p", "completion": "c"}\n', None, {}, "kto needs columns"),
    ],
)
def test_inputs_that_trl_cannot_use_end_it_with_status_1(
    make_run: MakeRun, trainer: Any, train: str, test: str | None, settings: dict[str, Any], problem: str
) -> None:
    run = make_run(trainer=trainer)
    (run.workspace / "dataset/train.jsonl").write_text(train)
    (run.workspace / "dataset/test.jsonl").unlink()
    if test is not None:
        (run.workspace / "dataset/test.jsonl").write_text(test)
    assert problem in run.train(**settings, expected=1)
    assert not list(run.output.glob("checkpoint-*"))


@pytest.mark.parametrize("trainer", [DpoTrainer(), KtoTrainer()])
def test_rows_of_preferences_are_accepted(make_run: MakeRun, trainer: Any) -> None:
    run = make_run(trainer=trainer, rows=[PAIR] * 4)
    run.train()
    assert [each.incomplete for each in find_checkpoints(run.output)] == ["", ""]


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


@pytest.mark.parametrize("batch", [{"batch_size": 2}, {"batch_size": 3}, {"batch_size": 1, "gradient_accumulation": 2}])
def test_epochs_of_several_steps_are_those_of_trl(run: Run, batch: dict[str, int]) -> None:
    run.train(method="full", steps=6, logging_steps=4, save_steps=4, eval_strategy="epoch", **batch)
    assert [each.step for each in find_checkpoints(run.output)] == [4, 6]
    state = json.loads((run.output / "checkpoint-6/trainer_state.json").read_bytes())
    logged = [(entry["step"], entry["epoch"], "loss" if "loss" in entry else "eval_loss") for entry in state["log_history"]]
    assert logged == [(2, 1.0, "eval_loss"), (4, 2.0, "loss"), (4, 2.0, "eval_loss"), (6, 3.0, "eval_loss")]
    assert run.history(6)[0]["learning_rate"] == pytest.approx(0.0015)
    steps = {name: state[name] for name in ("max_steps", "num_train_epochs", "logging_steps", "save_steps", "eval_steps")}
    assert steps == {"max_steps": 6, "num_train_epochs": 3, "logging_steps": 4, "save_steps": 4, "eval_steps": 500}
    assert (state["train_batch_size"], state["epoch"]) == (batch["batch_size"], 3.0)


def test_an_adapter_of_another_rank_does_not_resume(run: Run) -> None:
    run.train(steps=4, save_steps=4)
    assert "size mismatch for base_model.model.model.layers.0.q_proj.lora_A.weight: [4, 4] there, [8, 4] here" in run.train(
        steps=8, lora_rank=8, expected=1
    )
    assert [each.step for each in find_checkpoints(run.output)] == [4]


@pytest.mark.parametrize(
    ("method", "options", "losses", "found"),
    [
        ("lora", ("--logging_nan_inf_filter", "False"), [True, False, False, False], "loss is nan since step 2"),
        ("full", ("--logging_nan_inf_filter", "False"), [True, True, False, False], "loss is nan since step 3"),
        ("lora", ("--logging_nan_inf_filter", "True"), [True, 0.0, 0.0, 0.0], "grad_norm is nan since step 2"),
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


def test_progress_is_reported_every_five_seconds(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SCRIPT, json.dumps({"step_seconds": 2.55}))
    with report_server(monkeypatch, tmp_path) as reports:
        run.train(steps=2)
    assert [report["progressPercentage"] for report in reports] == [0, 99, 100]
    figures = {entry["name"]: entry["value"] for entry in reports[1]["metrics"]}
    assert (figures["current_step"], figures["step"]) == ("2", "1"), "a step ends before its figures are logged"


def test_a_report_that_fails_does_not_fail_the_training(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with report_server(monkeypatch, tmp_path) as reports:
        monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", f"http://127.0.0.1:{free_port()}/status")
        run.train()
    assert reports == []


def test_two_nodes_write_one_checkpoint(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.train(steps=1)
    checkpoint = tmp_path / "output/checkpoint-2"

    def start(node: int) -> subprocess.Popen[str]:
        paths = {"config": run.workspace / "resume/trl.yaml", "model_name_or_path": run.base}
        paths |= {"dataset_name": run.workspace / "dataset", "output_dir": checkpoint.parent}
        words = [f"--{name}={path}" for name, path in paths.items()]
        arguments = SFT.settings(steps=2, batch_size=1, logging_steps=1).arguments()
        env = {**os.environ, "PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": str(node)}
        command = [sys.executable, str(TRAINER), str(run.workspace / "resume/orderly_exit.py"), SFT.script, *words, *arguments]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)

    with report_server(monkeypatch, tmp_path) as reports:
        first = start(0)
        eventually(lambda: (checkpoint / "rng_state_1.pth").exists(), 20, "the states of the first node")
        assert not (checkpoint / "trainer_state.json").exists()
        second = start(1)
        ended = [node.communicate(timeout=60)[0] for node in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert sorted(path.name for path in checkpoint.glob("rng_state*")) == [f"rng_state_{rank}.pth" for rank in range(4)]
    assert json.loads((checkpoint / "trainer_state.json").read_bytes())["epoch"] == 2.0, "four ranks see four rows in a step"
    assert [out.count("{'loss': ") for out in ended] == [2, 2], "the first process of each node prints"
    assert ["trainwright-history" in out and "Model saved" in out for out in ended] == [True, False]
    assert len(reports) == 2


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


def test_a_launcher_that_is_not_python_fails(tmp_path: Path) -> None:
    launcher = tmp_path / "orderly_exit.py"
    launcher.write_text("import os; [")
    command = [sys.executable, str(TRAINER), str(launcher), SFT.script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "SyntaxError" in ended.stderr
