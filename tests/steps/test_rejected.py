"""A training that was not promoted is not done again while nothing that decides about it has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.export_fixtures import Export

from trainwright.steps.promotion.champion import Found, read_champion_for, settings_digest
from trainwright.steps.promotion.promote import promote
from trainwright.steps.requests import PromoteModel, ReadChampion
from trainwright.storage.uri import StorageUri

SETTINGS = {"settings": {"learning_rate": 1e-4}, "resources_per_node": {"cpu": "1"}, "placement": {"queue_name": "q"}}
OTHER = {"settings": {"learning_rate": 2e-4}}


def decide(root: str, candidate: Export, loss: float, training: dict[str, Any] = SETTINGS) -> bool:
    return promote(
        PromoteModel(
            export_uri=root,
            checkpoint_uri=candidate[0],
            checkpoint_digest=candidate[1],
            evaluation={"loss": loss, "dataset_digest": "held-out"},
            training=training,
        )
    ).promoted


def ask(root: str, dataset: str, training: dict[str, Any] = SETTINGS, **more: Any) -> Found:
    return read_champion_for(ReadChampion(export_uri=root, dataset_digest=dataset, model_digest="m", training=training, **more))


@pytest.fixture
def rejected(root: str, export: Callable[..., Export]) -> str:
    """The folder of exports, where a training on the data `new` was not promoted."""
    assert decide(root, export("champion", dataset="old", model="m"), 1.0)
    assert not decide(root, export("candidate", dataset="new", model="m"), 2.0)
    return root


def test_training_that_was_not_promoted_is_not_done_again(rejected: str) -> None:
    found = ask(rejected, "new")
    assert found.state == "current"
    assert "candidate/checkpoint-5 was not promoted: not better: loss 2 against 1; set always_train" in found.reason
    assert ask(rejected, "new", {**SETTINGS, "resources_per_node": {"cpu": "9"}, "logging": {"logs": "all"}}).state == "current"


@pytest.mark.parametrize(
    ("dataset", "asked"),
    [
        ("newer", {}),
        ("new", {"training": OTHER}),
        ("new", {"model_digest": "another"}),
        ("new", {"always_train": True}),
    ],
)
def test_anything_else_is_trained(rejected: str, dataset: str, asked: dict[str, Any]) -> None:
    request = ReadChampion(
        **{"export_uri": rejected, "dataset_digest": dataset, "model_digest": "m", "training": SETTINGS, **asked}
    )
    assert read_champion_for(request).state == "outdated"


def test_another_champion_is_another_comparison(rejected: str, export: Callable[..., Export]) -> None:
    assert decide(rejected, export("better", dataset="other", model="m"), 0.5)
    assert ask(rejected, "new").state == "outdated"


def test_first_training_that_is_worse_than_its_base_is_remembered(root: str, export: Callable[..., Export]) -> None:
    uri, digest = export("first", dataset="new", model="m")
    evaluation = {"loss": 2.0, "base": {"loss": 1.0}}
    request = PromoteModel(
        export_uri=root, checkpoint_uri=uri, checkpoint_digest=digest, evaluation=evaluation, training=SETTINGS
    )
    assert not promote(request).promoted
    assert (ask(root, "new").state, ask(root, "newer").state) == ("current", "none")


def test_record_that_cannot_be_read_costs_a_training_and_no_more(rejected: str, export: Callable[..., Export]) -> None:
    record = StorageUri.parse(rejected).path / "champion.rejected.json"
    record.write_text('{"rejected": [5]}', "utf-8")
    assert ask(rejected, "new").state == "outdated"
    assert not decide(rejected, export("again", dataset="new", model="m"), 2.0)
    assert ask(rejected, "new").state == "current"


def test_export_of_unknown_data_is_not_remembered(root: str, export: Callable[..., Export]) -> None:
    decide(root, export("champion", dataset="old"), 1.0)
    decide(root, export("unknown"), 2.0)
    assert not (Path(StorageUri.parse(root).path) / "champion.rejected.json").exists()


def test_settings_count_if_they_change_what_is_trained() -> None:
    assert settings_digest(SETTINGS) == settings_digest(
        {"settings": SETTINGS["settings"], "limits": {"run_timeout_seconds": 5}, "data": {}}
    )
    assert settings_digest(SETTINGS) != settings_digest(OTHER)
    assert settings_digest(SETTINGS) != settings_digest({**SETTINGS, "placement": {"runtime_kind": "TrainingRuntime"}})
    assert settings_digest({}) == settings_digest({**SETTINGS, "code": "./train"}) == ""


def test_training_of_unknown_settings_is_not_taken_for_another(rejected: str, export: Callable[..., Export]) -> None:
    assert ask(rejected, "new", {}).state == "outdated"
    assert not decide(rejected, export("by-code", dataset="newest", model="m"), 2.0, {"code": "./train"})
    assert ask(rejected, "newest", {"code": "./train"}).state == "outdated"


def test_candidate_that_is_gone_is_not_remembered(root: str, export: Callable[..., Export]) -> None:
    decide(root, export("champion", dataset="old", model="m"), 1.0)
    uri, digest = export("gone", dataset="new", model="m")
    (StorageUri.parse(uri).path / "manifest.json").unlink()
    assert not decide(root, (uri, digest), 2.0)
