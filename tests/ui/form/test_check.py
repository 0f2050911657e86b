"""Tests the check of the form: every problem with the field that it is about, and nothing that a run would refuse later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainwright.jobs.request.setting import names_of
from trainwright.steps.requests import FineTuning
from trainwright.ui.form.check import SECRETS, checked, settings

GOOD = {
    "model_uri": "hf://org/model",
    "dataset_uri": "s3://data/rows.jsonl",
    "export_uri": "s3://models/x",
    "workspace": "pvc://training?size=5Gi",
}


def problems(**changes: Any) -> dict[str, str]:
    return {each.field: each.message for each in checked({**GOOD, **changes}, looks_at_files=False).problems}


@pytest.mark.medium
def test_form_has_the_twenty_parameters_of_the_pipeline() -> None:
    from inspect import signature

    from trainwright.pipelines import finetune

    names = {one.name for one in settings()}
    assert len(names) == 20
    assert names == set(
        signature(finetune.python_func).parameters if hasattr(finetune, "python_func") else finetune.component_spec.inputs
    )
    assert names == {*names_of(FineTuning), *(one.name for one in SECRETS)}


def test_good_values_have_no_problems() -> None:
    found = checked(GOOD, looks_at_files=False)
    assert found.problems == ()
    assert found.request is not None
    assert found.request.model_uri == "hf://org/model"


def test_all_missing_fields_are_named_at_once() -> None:
    found = checked({}, looks_at_files=False)
    assert {each.field for each in found.problems} == set(GOOD)


@pytest.mark.parametrize(
    ("changes", "field", "part"),
    [
        ({"epochs": -1}, "epochs", "negative"),
        ({"epochs": "inf"}, "epochs", ""),
        ({"num_nodes": 1.5}, "num_nodes", "whole"),
        ({"workspace": "pvc://!!"}, "workspace", ""),
        ({"method": "magic"}, "method", "lora"),
        ({"training": {"imagee": "x"}}, "training", "image"),
        ({"training": {"restarts": 1}}, "training", "training.restarts: unknown setting; it is training.limits.restarts"),
        ({"training": {"limits": {"restarts": -1}}}, "training", "training.limits.restarts: expected at least 1"),
        ({"training": {"secrets": 3}, "hub_secret": "hub"}, "training", "training.secrets: expected an object"),
        ({"evaluation": {"harness": {"few_shot": -2}}}, "evaluation", "evaluation.harness.few_shot: expected at least -1"),
        ({"data": {"test_fraction": 3}}, "data", "test_fraction"),
        ({"workspace": ""}, "workspace", "required"),
        ({"model_uri": "org/model"}, "model_uri", "URI"),
        ({"learning_rate": "nan"}, "learning_rate", ""),
        ({"promote": "maybe"}, "promote", "better"),
    ],
)
def test_each_problem_names_its_field(changes: dict[str, Any], field: str, part: str) -> None:
    found = problems(**changes)
    assert field in {name.partition(".")[0] for name in found}, found
    assert any(part in message for message in found.values()), found


def test_several_problems_are_told_together() -> None:
    assert {"epochs", "num_nodes"} <= set(problems(epochs=-1, num_nodes=-2))


def test_secrets_become_settings_of_the_training() -> None:
    found = checked({**GOOD, "store_secret": "s3", "hub_secret": ""}, looks_at_files=False)
    assert found.request is not None
    assert found.request.training == {"secrets": {"store_secret": "s3"}}


@pytest.mark.parametrize("secrets", [{"store_secret": "other"}, '{"store_secret": "other"}'])
def test_secret_that_the_training_names_otherwise_is_a_problem(secrets: Any) -> None:
    found = problems(store_secret="s3", training={"secrets": secrets})
    assert found == {"training": "training.secrets.store_secret: given twice, with different values; give it once"}
    agreed = checked({**GOOD, "hub_secret": "hub", "training": {"secrets": secrets}}, looks_at_files=False)
    assert agreed.run is not None
    assert agreed.run.training.secrets.given_values() == {"store_secret": "other", "hub_secret": "hub"}


def test_paths_are_read_where_the_page_may_read_files(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n", "utf-8")
    found = checked({**GOOD, "dataset_uri": str(rows), "model_uri": "org/model"}, looks_at_files=True)
    assert found.request is not None
    assert (found.request.dataset_uri, found.request.model_uri) == (f"file://{rows}", "hf://org/model")
    missing = checked({**GOOD, "dataset_uri": str(tmp_path / "nothing")}, looks_at_files=True)
    assert [each.field for each in missing.problems] == ["dataset_uri"]


@pytest.mark.parametrize("name", ["model_uri", "dataset_uri", "export_uri"])
def test_relative_paths_are_not_those_of_the_server(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder `org/model` below the folder that the server happens to run in is not the model of that name."""
    (tmp_path / "org" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    found = checked({**GOOD, "model_uri": "org/model"}, looks_at_files=True)
    assert found.request is not None
    assert found.request.model_uri == "hf://org/model"
    for path in ("./org/model", "org", "../x/y"):
        assert [each.field for each in checked({**GOOD, name: path}, looks_at_files=True).problems] == [name]


def test_credentials_in_settings_are_refused() -> None:
    for training in ({"env": {"HF_TOKEN": "hf_" + "a" * 34}}, {"secrets": {"store_secret": "hf_" + "a" * 34}}):
        found = problems(training=training, hub_secret="hub")
        assert found
        assert "hf_aaaa" not in str(found)
