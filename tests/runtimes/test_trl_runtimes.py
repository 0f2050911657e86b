"""What the runtimes trl-* rely on in other people's programs, so that an upgrade which changes it is noticed."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainwright.api.objects import named
from trainwright.jobs.logs.training_log import parse_history
from trainwright.jobs.trainers.dpo import DpoTrainer
from trainwright.jobs.trainers.kto import KtoTrainer
from trainwright.jobs.trainers.sft import SftTrainer
from trainwright.jobs.trainers.trl import TrlTrainer
from trainwright.runtimes import bundled_runtime
from trainwright.runtimes.bundled import catalogue_texts
from trainwright.runtimes.report_progress import install

TRAINERS = (SftTrainer(), DpoTrainer(), KtoTrainer())
EVERY_SETTING: dict[str, dict[str, Any]] = {
    "sft": {},
    "dpo": {"beta": 0.2, "loss": "ipo", "precompute_reference": True},
    "kto": {"beta": 0.2, "desirable_weight": 2, "undesirable_weight": 0.5, "precompute_reference": True},
}


def node(name: str = "trl-sft") -> dict[str, Any]:
    runtime = bundled_runtime(name)
    assert runtime is not None
    job = named(runtime["spec"]["template"]["spec"]["replicatedJobs"], "node")
    assert job is not None
    container: dict[str, Any] = job["template"]["spec"]["template"]["spec"]["containers"][0]
    return container


@pytest.mark.medium
def test_accelerate_still_leaves_the_process_group_alone_when_it_is_told_to() -> None:
    assert {"name": "FORK_LAUNCHED", "value": "1"} in node()["env"]
    code = (
        "import torch.distributed as d\nfrom accelerate.state import PartialState\n"
        "state = PartialState(cpu=True)\nd.is_initialized = lambda: True\nd.destroy_process_group = lambda group=None: 1 / 0\n"
        "state.destroy_process_group()"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"FORK_LAUNCHED": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "rate"), [("sft", "2e-4"), ("dpo", "5e-6"), ("kto", "5e-6")])
def test_each_method_has_a_runtime_with_its_script_and_learning_rate(name: str, rate: str) -> None:
    assert [trainer.runtime for trainer in TRAINERS if trainer.name == name] == [f"trl-{name}"]
    container = node(f"trl-{name}")
    assert container["command"][2] == f"trl.scripts.{name}"
    assert container["args"][container["args"].index("--learning_rate") + 1] == rate
    assert "sft" not in catalogue_texts()[f"trl-{name}.yaml"] or name == "sft"


@pytest.mark.medium
@pytest.mark.parametrize("trainer", TRAINERS, ids=lambda trainer: trainer.name)
def test_scripts_of_trl_parse_all_arguments_and_pass_the_checkpoint_on(trainer: TrlTrainer, tmp_path: Path) -> None:
    import inspect
    from importlib import import_module

    script = import_module(trainer.script)
    assert "resume_from_checkpoint=training_args.resume_from_checkpoint" in inspect.getsource(script)
    config = tmp_path / "trl.yaml"
    config.write_text(json.dumps({"resume_from_checkpoint": "/workspace/output/checkpoint-3"}))
    container = node(trainer.runtime)
    own = [str(config) if word == "/resume/trl.yaml" else word for word in container["command"]]
    own = own[own.index(trainer.script) + 1 :]
    every = {**EVERY_SETTING[trainer.name], "cpu": True, "steps": 3, "eval_strategy": "steps", "learning_rate": 1e-3}

    def parsed(words: list[str]) -> Any:
        """All values by name; a word that no dataclass of the script has raises ValueError."""
        found = script.make_parser().parse_args_and_config([*own, *words], fail_with_unknown_args=False)
        return SimpleNamespace(**{name: value for part in found for name, value in vars(part).items()})

    given = parsed(trainer.settings.model_validate(every).arguments())
    assert (given.max_steps, given.use_cpu, given.eval_strategy, given.use_peft) == (3, True, "steps", True)
    assert given.learning_rate == 1e-3
    assert given.resume_from_checkpoint == "/workspace/output/checkpoint-3"
    assert (given.bf16, given.logging_nan_inf_filter, given.lora_target_modules) == (False, False, "all-linear")
    if trainer.name != "sft":
        assert (given.beta, given.precompute_ref_log_probs) == (0.2, True)
        assert getattr(given, "undesirable_weight", given.loss_type) in (0.5, ["ipo"])
    cpu = ["--use_cpu", "--bf16", "False"]  # a machine without a GPU has no bfloat16
    assert not parsed([*trainer.settings(method="full").arguments(), *cpu]).use_peft
    quantized = parsed([*trainer.settings(method="qlora").arguments(), *cpu])
    assert (quantized.load_in_4bit, quantized.use_bnb_nested_quant, quantized.dtype) == (True, True, "bfloat16")
    assert parsed([*container["args"], *cpu]).use_peft
    with pytest.raises(ValueError, match="not used"):
        parsed([*cpu, "--no_such_option", "1"])


@pytest.mark.medium
def test_reports_of_transformers_are_extended_by_steps_and_history(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import trainer
    from transformers.integrations.integration_utils import KubeflowCallback
    from transformers.trainer_callback import PrinterCallback, TrainerControl, TrainerState

    modules: Any = trainer
    sent: list[dict[str, Any]] = []
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", "https://nowhere")
    monkeypatch.setattr(modules, "DEFAULT_CALLBACKS", list(modules.DEFAULT_CALLBACKS))
    monkeypatch.setattr(KubeflowCallback, "_update_status", lambda _self, metrics=None, **_more: sent.append(dict(metrics)))
    for extended, name in ((PrinterCallback, "on_log"), (KubeflowCallback, "on_log"), (KubeflowCallback, "on_train_end")):
        monkeypatch.setattr(extended, name, getattr(extended, name))  # restored after the test
    install("trl.scripts.sft")
    callbacks: list[Any] = [KubeflowCallback(), PrinterCallback(), modules.DEFAULT_CALLBACKS[-1]()]
    state, control = TrainerState(max_steps=20), TrainerControl()
    for callback in callbacks:
        callback.on_train_begin(None, state, control)
    for step, loss in ((10, 1.5), (20, math.nan)):
        state.global_step, state.epoch = step, step / 20
        logs: dict[str, float] = {"loss": loss, "epoch": step / 20}
        state.log_history.append({**logs, "step": step})
        for callback in callbacks:
            callback.on_log(None, state, control, logs=dict(logs))
    for callback in callbacks:
        callback.on_train_end(None, state, control)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["{'loss': '1.5', 'epoch': '0.5', 'step': 10}", "{'loss': 'nan', 'epoch': '1', 'step': 20}"]
    assert [entry["step"] for entry in parse_history(lines)] == [10, 20]
    _, first, _, last = sent
    assert (first["loss"], first["step"], first["current_step"]) == (1.5, 10, 10)
    assert (last["step"], last["current_step"], last["loss_not_finite_since"], last["loss_not_finite_reports"]) == (20, 20, 20, 1)
