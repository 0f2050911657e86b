"""The settings of a whole run are sorted to its steps; what is unknown, wrong or given twice ends it before anything is done."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.jobs.credentials.secret_detection import LiteralSecret
from trainwright.jobs.request.setting_names import SETTINGS
from trainwright.steps.parameter_tables import STEP_PARAMETERS
from trainwright.steps.phases import OF_THE_CHAIN, RUN_SETTINGS, Phases, phases_of
from trainwright.steps.requests import FineTuning, FullPipeline, Retraining, StartRun, Sweep
from trainwright.steps.requests.forms import MOST_FIELDS


def phases(**form: Any) -> Phases:
    run = form.pop("run", None)
    return phases_of(StartRun.from_parameters({"workspace": "w", **form}), run)


def test_each_setting_goes_to_its_step() -> None:
    found = phases(
        epochs=2,
        num_nodes="2",
        training={"env": {"A": "1"}, "run_id": "r", "image": "train:1", "job_retries": 1},
        data='{"layout": "alpaca"}',
        evaluation={
            "max_rows": 3,
            "resumable": False,
            "which": "last",
            "promote_margin": 0.1,
            "registry_alias": "best",
            "image": "evaluate:1",
        },
        defaults={"retention": "keep=5", "keep_exports": 0},
    )
    own = {"env": {"A": "1"}, "num_nodes": 2, "settings": {"epochs": 2.0}, "image": "train:1", "job_retries": 1}
    assert (found.training, found.export) == (own, {"which": "last", "resumable": False})
    assert found.data == {"layout": "alpaca", "trainer": "sft", "max_length": 1024}
    assert found.evaluation == {"env": {"A": "1"}, "max_rows": 3, "image": "evaluate:1", "retention": "keep=5"}
    assert (found.promotion, found.registration, found.own) == ({"margin": 0.1}, {"alias": "best"}, {"keep_exports": 0})
    assert found.run == {**RUN_SETTINGS, "run_id": "r"}


def test_the_evaluation_has_the_placement_of_the_training_unless_it_has_another() -> None:
    placed = {"queue_name": "gpu", "tolerations": [{"key": "a", "operator": "Exists"}], "on_cancel": "delete"}
    found = phases(training={**placed, "resources_per_node": {"cpu": "2"}}, evaluation={"on_cancel": "suspend"})
    assert found.evaluation == {**placed, "on_cancel": "suspend"}


def test_a_setting_of_the_preprocessing_is_one_of_the_data_only_if_there_is_a_preprocessing() -> None:
    data = {"layout": "alpaca", "min_chars": 3, "columns": {"prompt": "q"}}
    found = phases(data=data, preprocesses=True)
    assert found.data == {"layout": "alpaca", "trainer": "sft", "max_length": 1024}
    assert found.preprocessing == {"min_chars": 3, "columns": {"prompt": "q"}}
    with pytest.raises(ValueError, match=r"data\.min_chars: unknown setting"):
        phases(data=data)


@pytest.mark.parametrize(
    ("form", "learnt"),
    [
        ({}, {"max_length": 1024}),
        ({"max_length": 512}, {"max_length": 512}),
        ({"training": {"settings": {"max_length": 2048}}}, {"max_length": 2048}),
        ({"data": {"max_length": 9, "report_mode": "required"}}, {"max_length": 9, "report_mode": "required"}),
        ({"training": {"runtime": "other"}}, {"report_mode": "warn"}),
        ({"training": {"builtin": "sft", "runtime": "other"}}, {"max_length": 1024}),
        ({"training": {"builtin": "dpo", "settings": {"max_length": 99}}}, {"max_length": 99}),
        ({"training": {"builtin": "torchtune", "runtime": "torchtune-llama3.2-1b"}}, {"report_mode": "warn"}),
        ({"training": {"code": "x", "command": ["a"]}}, {"report_mode": "warn"}),
        ({"training": {"settings": {"extra": ["--packing"]}}}, {}),
        ({"training": {"settings": {"extra": ["--max-length=4096"]}}}, {}),
        ({"training": {"settings": {"extra": ["--chat_template_path", "t"]}}}, {"report_mode": "off"}),
    ],
)
def test_dataset_step_learns_how_rows_are_cut(form: dict[str, Any], learnt: dict[str, Any]) -> None:
    data = phases(**form).data
    assert {name: data[name] for name in ("max_length", "report_mode") if name in data} == learnt


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"training": {"imagee": "x"}}, r"training\.imagee: unknown setting; did you mean image\?"),
        ({"training": {"workspace": "x"}}, r"training\.workspace: the pipeline sets it"),
        ({"training": {"num_nodes": -1}}, "training: num_nodes: expected at least 1"),
        ({"training": "[1]"}, "training: expected an object"),
        ({"training": {"code": "x"}}, "training: command: required with code"),
        ({"epochs": 2, "training": {"settings": {"epochs": 3}}}, "epochs: given twice"),
        ({"num_nodes": 2, "training": {"num_nodes": 3}}, "num_nodes: given twice"),
        ({"epochs": 2, "training": {"code": "x", "command": ["a"]}}, r"epochs: .*training\.code is a program"),
        ({"learning_rate": -1}, r"learning_rate"),
        ({"data": {"test_fraction": 2}}, r"data\.test_fraction: expected less than 1"),
        ({"data": {"dataset_uri": "x"}}, r"data\.dataset_uri: the pipeline sets it"),
        ({"data": {"trainer": "sft"}}, r"data\.trainer: the pipeline sets it"),
        ({"training": {"builtin": "dop"}}, r"builtin: 'dop' is not installed; did you mean dpo\?"),
        ({"evaluation": {"max_row": 1}}, r"evaluation\.max_row: unknown setting; did you mean max_rows\?"),
        ({"evaluation": {"promote_margin": "much"}}, r"evaluation\.margin: expected a number"),
        ({"evaluation": {"keep_exports": 1}}, r"evaluation\.keep_exports: unknown setting"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(form: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        phases(**form)


@pytest.mark.parametrize(
    ("form", "trainer"),
    [
        ({}, "sft"),
        ({"training": {"builtin": "dpo"}}, "dpo"),
        ({"runtime": "trl-kto"}, "kto"),
        ({"runtime": "trl-sft", "training": {"builtin": "kto"}}, "kto"),
        ({"runtime": "torchtune-llama3.2-1b", "training": {"builtin": "torchtune"}}, "torchtune"),
        ({"runtime": "torch-distributed", "training": {"command": ["a"]}}, None),
        ({"runtime": "of-this-cluster"}, None),
        ({"training": {"code": "x", "command": ["a"]}}, None),
    ],
)
def test_preparation_of_data_is_told_the_trainer(form: dict[str, Any], trainer: str | None) -> None:
    assert phases(**form).data.get("trainer") == trainer


def test_secrets_of_the_training_are_those_of_every_step_on_the_cluster() -> None:
    secrets = {"store_secret": "store", "hub_secret": "hub"}
    assert phases(training=secrets).run["job"] == secrets
    assert phases(training={**secrets, "job": "{store_secret: other}"}).run["job"] == {
        "store_secret": "other",
        "hub_secret": "hub",
    }
    assert phases(training={"store_secret": ""}).run["job"] == {}


def test_a_literal_credential_is_refused() -> None:
    with pytest.raises(LiteralSecret):
        phases(training={"env": {"AWS_SECRET_ACCESS_KEY": "abc"}})


def test_what_was_given_apart_holds_unless_the_training_has_another() -> None:
    found = phases(
        run={"run_id": "r", "namespace": "", "workspace_path": "/mnt"}, training={"run_id": "mine", "tie_to_run": False}
    )
    assert (found.run["run_id"], found.run["workspace_path"], found.run["tie_to_run"]) == ("mine", "/mnt", False)


@given(st.sampled_from([*SETTINGS, *RUN_SETTINGS]), st.sampled_from(["training", "data", "evaluation"]))
def test_property_no_setting_is_left_out_in_silence(name: str, structure: str) -> None:
    """Whatever is named goes to a step, or is refused."""
    value: Any = {"true": True}.get(name, "x")
    try:
        found = phases(**{structure: {name: value}})
    except ValueError:
        return
    everywhere = {key for step in found.as_dict().values() for key in step}
    assert name in everywhere
    assert name not in OF_THE_CHAIN


@pytest.mark.parametrize("form", [FineTuning, Retraining, Sweep, FullPipeline])
def test_a_form_has_few_fields_each_with_a_description(form: Any) -> None:
    fields = STEP_PARAMETERS[form.__name__]
    assert len(fields) + 2 <= MOST_FIELDS, "with the connections or Secrets"
    for field in fields.values():
        assert field.description.endswith("."), field.name
        assert field.group[0].isupper(), field.name


@pytest.mark.parametrize(
    ("training", "is_refused"),
    [
        ({}, True),
        ({"settings": {"eval_strategy": "epoch"}}, True),
        ({"settings": {"extra": ["--load_best_model_at_end", "False"]}}, True),
        ({"settings": {"extra": ["--load_best_model_at_end"]}}, False),
        ({"settings": {"extra": ["--metric_for_best_model=loss"]}}, False),
        ({"command": ["python", "train.py"]}, False),
    ],
)
def test_best_checkpoint_is_asked_for_before_the_training(training: dict[str, Any], is_refused: bool) -> None:
    if is_refused:
        with pytest.raises(ValueError, match=r"evaluation.which: best needs a training that compares its checkpoints"):
            phases(training=training, evaluation={"which": "best"})
    else:
        assert phases(training=training, evaluation={"which": "best"}).export == {"which": "best"}
