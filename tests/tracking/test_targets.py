"""Targets of tracking: what they write to without an address, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import train_request

from trainwright.jobs import Identity
from trainwright.tracking import parse_targets, tracked_run

FOLDER = Path("/w/tracking")


def shown(*texts: str, environ: dict[str, str] | None = None, folder: Path | None = FOLDER) -> list[str]:
    return [str(target) for target in parse_targets(texts, environ or {}, folder)]


def test_without_addresses_everything_is_below_the_folder() -> None:
    expected = ["mlflow:sqlite:////w/tracking/mlflow.db", "wandb:trainwright", "tensorboard:/w/tracking/tensorboard"]
    assert shown("mlflow", "wandb", "tensorboard") == expected


def test_an_address_comes_before_a_variable_and_a_variable_before_the_folder() -> None:
    environ = {"MLFLOW_TRACKING_URI": "https://mlflow.example.com", "WANDB_PROJECT": "support"}
    assert shown("mlflow", "wandb", environ=environ) == ["mlflow:https://mlflow.example.com", "wandb:support"]
    assert shown("mlflow:http://other:5000", environ=environ) == ["mlflow:http://other:5000"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["comet"], "'comet' is unknown; expected mlflow, wandb, tensorboard"),
        (["mlflow"], "MLFLOW_TRACKING_URI, or workspace_path"),
        (["tensorboard:"], "a folder, or workspace_path"),
        (["mlflow:https://me:secret@host"], "no credentials in an address"),
        (["wandb", "wandb:trainwright"], r"tracking\[1\]: wandb:trainwright is listed twice"),
    ],
)
def test_a_target_that_cannot_be_meant_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        shown(*texts, folder=None)
    assert "secret@" not in str(refused.value)


def test_a_run_shows_settings_and_sources_but_no_variables() -> None:
    request = train_request(
        runtime="trl-sft",
        settings={"learning_rate": 0.1, "peft": {"rank": 8}},
        env={"TOKEN_FILE": "/run/x"},
        dataset_uri="hf://org/data",
        num_nodes=2,
    )
    run = tracked_run(Identity("kfp", "my-run", "train", 3), request)
    assert run.parameters == {"runtime": "trl-sft", "num_nodes": 2, "learning_rate": 0.1, "peft.rank": 8}
    assert run.tags == {"trainwright.run": "my-run", "trainwright.dataset_uri": "hf://org/data"}
    assert run.step == "kfp/my-run/train[3]"
    assert "/run/x" not in str(run)
