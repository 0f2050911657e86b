"""Real trainings with TRL's scripts for preferences: the reference is the base model, also after a restart."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.trl_run import Run

from trainwright.checkpoints.restore import verify_export
from trainwright.evaluation import program
from trainwright.jobs.trainers.dpo import DpoTrainer
from trainwright.jobs.trainers.kto import KtoTrainer
from trainwright.jobs.trainers.trl import TrlTrainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
WIDE = pytest.mark.wide(part="trl")
WORDS = ("one", "two", "three", "four")
PAIRS = [{"prompt": f"the ferry {word} leaves at", "chosen": " noon, as ever", "rejected": f" the {word}"} for word in WORDS]
IMPLICIT = [{"chosen": row["prompt"] + row["chosen"], "rejected": row["prompt"] + row["rejected"]} for row in PAIRS]
MARKED = [
    {"prompt": row["prompt"], "completion": row["chosen" if at % 2 else "rejected"], "label": bool(at % 2)}
    for at, row in enumerate(PAIRS)
]
EVALUATED = {"steps": 6, "save_steps": 2, "eval_strategy": "steps", "eval_steps": 6}


@pytest.fixture(scope="module")
def base(tiny_model: Path) -> Path:
    return tiny_model


@pytest.mark.parametrize(
    ("trainer", "rows", "settings", "first"),
    [
        (DpoTrainer(), PAIRS, {"method": "lora"}, math.log(2)),
        pytest.param(
            *(DpoTrainer(), IMPLICIT, {"method": "full", "learning_rate": 3e-4, "precompute_reference": True}, math.log(2)),
            marks=WIDE,
        ),
        (KtoTrainer(), MARKED, {"method": "full", "learning_rate": 3e-4}, 0.5),
        pytest.param(KtoTrainer(), PAIRS, {"method": "lora"}, 0.5, marks=WIDE),
    ],
    ids=["dpo-lora", "dpo-full", "kto-full", "kto-lora"],
)
def test_training_moves_from_the_reference_and_resumes_with_it(
    tmp_path: Path,
    base: Path,
    monkeypatch: pytest.MonkeyPatch,
    trainer: TrlTrainer,
    rows: list[dict[str, Any]],
    settings: dict[str, Any],
    first: float,
) -> None:
    run = Run(tmp_path, base, monkeypatch, rows, trainer)
    run.train(**EVALUATED, **settings)
    history = run.history(6)
    # The loss of a model that is the reference, whatever the rows.
    assert history[0]["loss"] == pytest.approx(first, abs=1e-3)
    assert history[-1]["loss"] < first - 0.01
    exported = run.export()
    assert verify_export(exported).step == 6

    last = run.output / "checkpoint-6"
    result = program.evaluate(base, last, tmp_path / "dataset", max_new_tokens=1, batch_size=4)
    is_full = settings["method"] == "full"
    assert (result["kind"], result["held_out"]) == ("model" if is_full else "adapter", True)
    of_pairs = rows is not MARKED  # of pairs the loss is DPO's, whoever has trained on them
    assert result["before"]["loss"] == pytest.approx(math.log(2) if of_pairs else 0.5, abs=1e-6)
    if of_pairs == (trainer.name == "dpo"):
        (evaluated,) = run.evaluations(6)
        assert result["after"]["loss"] == pytest.approx(evaluated["eval_loss"], abs=2e-4)
    assert result["after"]["loss"] < result["before"]["loss"] - 0.01
    assert result["after"].get("preference_accuracy") == (1.0 if of_pairs else None)
    assert "perplexity" not in result["after"]

    if trainer.name == "kto" and not is_full:  # TRL drops rows that are too long, and would save the model as it was
        empty = Run(tmp_path / "empty", base, monkeypatch, rows, trainer)
        assert "no step was trained: no row is left" in empty.train(expected=1, max_length=3, **settings)

    if is_full != (trainer.name == "dpo"):  # a restart, once for each trainer and method
        for step in (4, 6):
            shutil.rmtree(run.output / f"checkpoint-{step}")
        run.train(**EVALUATED, **settings)
        assert [entry["loss"] for entry in run.history(6)] == pytest.approx([entry["loss"] for entry in history], abs=2e-4)
