"""What the runtime trl-sft relies on in other people's programs, so that an upgrade which changes it is noticed."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

from trainwright.api.objects import named
from trainwright.jobs.logs.history_lines import parse_history
from trainwright.runtimes import bundled_runtime
from trainwright.runtimes.report_progress import install


def node() -> dict[str, Any]:
    runtime = bundled_runtime("trl-sft")
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


@pytest.mark.medium
def test_trl_still_passes_the_checkpoint_on_and_knows_our_arguments() -> None:
    import inspect

    from transformers import TrainingArguments
    from trl import ModelConfig, ScriptArguments, SFTConfig
    from trl.scripts import sft

    from trainwright.jobs.trainers.sft import SftSettings

    assert "resume_from_checkpoint=training_args.resume_from_checkpoint" in inspect.getsource(sft)
    known = {
        name for config in (ModelConfig, ScriptArguments, SFTConfig, TrainingArguments) for name in config.__dataclass_fields__
    }
    words = [*node()["command"], *node()["args"], *SftSettings(cpu=True, steps=1).arguments()]
    used = {word.removeprefix("--") for word in words if word.startswith("--")} - {"config"}
    assert used <= known


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
