"""A real training with TRL starts from exported weights: its first loss is theirs, its steps and its learning rate start again.

Each batch is the whole dataset and nothing is random, so that the loss of a step depends on the weights alone.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainwright.api import names
from trainwright.checkpoints import export_checkpoint
from trainwright.jobs.trainers.sft import SftSettings
from trainwright.quickstart.base_model import ensure_base_model
from trainwright.storage.uri import StorageUri

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROWS, EXPORTED = 4, 6
SETTINGS: dict[str, Any] = {
    "learning_rate": 3e-3,
    "batch_size": ROWS,
    "max_length": 64,
    "lora_rank": 4,
    "logging_steps": 1,
    "save_steps": EXPORTED,
    "steps": EXPORTED + 1,
    "cpu": True,
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure_base_model(tmp_path_factory.mktemp("models"), preset="tiny")


class Run:
    """A run on a volume of its own, whose pods do what those of the runtime `trl-sft` do."""

    def __init__(self, workspace: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.workspace, self.base, self.patch = workspace, base, monkeypatch
        (workspace / "dataset").mkdir(parents=True)
        rows = [{"text": f"the ferry {word} leaves the harbour at {word}"} for word in ("one", "two", "three", "four")]
        (workspace / "dataset" / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")

    def train(self, resume: str = "auto", expected: int = 0, **settings: Any) -> str:
        """Decide where to start, and train; what was printed."""
        folder = self.workspace / "resume"
        module = "trainwright.checkpoints.resume_point"
        files = ["--config", str(folder / "trl.yaml"), "--launcher", str(folder / "orderly_exit.py"), "--model", str(self.base)]
        with self.patch.context() as patched:
            patched.setattr(sys, "argv", [module, "--workspace", str(self.workspace), *files])
            patched.setenv(names.RESUME_VARIABLE, resume)
            patched.setenv(names.RESUME_JOB_VARIABLE, "uid")
            patched.delitem(sys.modules, module, raising=False)
            with pytest.raises(SystemExit) as ended:
                runpy.run_module(module, run_name="__main__")
        assert ended.value.code == 0
        command = [sys.executable, str(folder / "orderly_exit.py"), "trl.scripts.sft", "--config", str(folder / "trl.yaml")]
        paths = {"model_name_or_path": self.base, "dataset_name": self.workspace / "dataset", "output_dir": self.output}
        words = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
        given = SftSettings(**{**SETTINGS, **settings})
        more = ["--report_to", "none", "--disable_tqdm", "True", "--save_strategy", "steps"]
        if given.method == "lora":
            more += ["--lora_dropout", "0"]
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "FORK_LAUNCHED": "1"}
        log = self.workspace / "log"
        with log.open("wb") as printed:
            status = subprocess.run(
                [*command, *words, *more, *given.arguments()], stdout=printed, stderr=subprocess.STDOUT, env=env, timeout=240
            ).returncode
        assert status == expected, log.read_text("utf-8", "replace")[-4000:]
        return log.read_text("utf-8", "replace")

    @property
    def output(self) -> Path:
        return self.workspace / "output"

    def history(self, step: int) -> list[dict[str, Any]]:
        """What was logged until a checkpoint, one entry for each step."""
        state = json.loads((self.output / f"checkpoint-{step}" / "trainer_state.json").read_bytes())
        return [entry for entry in state["log_history"] if "loss" in entry]

    def export(self) -> str:
        return export_checkpoint(
            self.output, str(StorageUri.from_path(self.workspace / "exports")), source="run/job", step=EXPORTED
        ).uri


@pytest.mark.parametrize("method", ["lora", "full"])
def test_the_first_loss_is_that_of_the_exported_weights(
    tmp_path: Path, base: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Run(tmp_path / "first", base, monkeypatch)
    first.train(method=method)
    uri, history = first.export(), first.history(EXPORTED + 1)
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
    # The same run again, as after a preemption: it resumes from its own checkpoint.
    printed = second.train(f"weights:{uri}", method=method, steps=4, save_steps=4)
    assert "training starts at step 0" not in printed
    assert second.history(4)[:3] == started
    assert [entry["step"] for entry in second.history(4)] == [1, 2, 3, 4]


def test_weights_that_do_not_fit_are_refused_before_the_first_step(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Run(tmp_path / "first", base, monkeypatch)
    first.train(steps=EXPORTED)
    uri = first.export()
    second = Run(tmp_path / "second", base, monkeypatch)
    printed = second.train(f"weights:{uri}", expected=1, lora_rank=8, lora_alpha=16)
    assert f"cannot start from the weights of {uri}: the adapter does not fit" in printed
    assert "lora_alpha is 32 there and 16 here" in printed
    assert "other shapes (an adapter's rank is lora_rank): base_model." in printed
    printed = second.train(f"weights:{uri}", expected=1, method="full")
    assert "it is an adapter, but this run trains all weights; set method=lora" in printed
    assert not list(second.output.glob("checkpoint-*"))
