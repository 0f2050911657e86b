"""A real training with TRL starts from exported weights: its first loss is theirs, its steps and its learning rate start again."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.trl_run import EXPORTED, Run

from trainwright.quickstart.base_model import ensure_base_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure_base_model(tmp_path_factory.mktemp("models"), preset="tiny")


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
