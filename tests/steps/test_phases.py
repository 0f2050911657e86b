"""The settings of a whole run are sorted to its steps; what is unknown, wrong or given twice ends it before anything is done."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.jobs import TrainRequest
from trainwright.jobs.credentials.secret_detection import LiteralSecret
from trainwright.jobs.request.setting import names_of, paths_of, settings_of
from trainwright.steps.phases import OF_THE_CHAIN, phases_of
from trainwright.steps.requests import EvaluateExport, FineTuning, FullPipeline, Retraining, Run, RunPlace, StartRun, Sweep
from trainwright.steps.requests.forms import MOST_FIELDS


def phases(**form: Any) -> Run:
    place = RunPlace.parse(form.pop("place", {}))
    return phases_of(StartRun.parse({"workspace": "w", **form}), place)


def test_each_setting_goes_to_its_step() -> None:
    found = phases(
        epochs=2,
        num_nodes="2",
        training={"env": {"A": "1"}, "run_id": "r", "image": "train:1", "limits": {"job_retries": 1}},
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
    training = {"env": {"A": "1"}, "num_nodes": 2, "settings": {"epochs": 2}, "image": "train:1", "limits": {"job_retries": 1}}
    assert found.given_values() == {
        "run_id": "r",
        "training": training,
        "data": {"layout": "alpaca", "trainer": "sft", "max_length": 1024},
        "export": {"which": "last", "resumable": False},
        "evaluation": {"env": {"A": "1"}, "max_rows": 3, "image": "evaluate:1", "retention": "keep=5"},
        "promotion": {"margin": 0.1},
        "registration": {"alias": "best"},
        "own": {"keep_exports": 0},
    }


def test_evaluation_is_placed_as_the_training_unless_it_is_placed_otherwise() -> None:
    placement = {"queue_name": "gpu", "tolerations": [{"key": "a", "operator": "Exists"}]}
    limits = {"run_timeout_seconds": 60, "queue_timeout_seconds": 5}
    found = phases(
        training={
            "placement": {**placement, "volumes": [{"name": "a", "emptyDir": {}}], "memory_check": "off"},
            "limits": {**limits, "restarts": 2, "job_retries": 3, "fail_if_stuck": False},
            "ending": {"on_cancel": "delete", "tie_to_run": False, "previous_jobs": "delete"},
            "secrets": {"hub_secret": "hub", "store_secret": "store"},
            "logging": {"logs": "all"},
            "resources_per_node": {"cpu": "2"},
            "labels": {"team": "a"},
        },
        evaluation={"ending": {"on_cancel": "suspend"}, "limits": {"queue_timeout_seconds": 0}},
    )
    assert found.evaluation.given_values() == {
        "placement": placement,
        "limits": {"run_timeout_seconds": 60, "queue_timeout_seconds": None},
        "ending": {"on_cancel": "suspend", "tie_to_run": False},
        "secrets": {"hub_secret": "hub"},
        "labels": {"team": "a"},
    }


def test_a_setting_of_the_preprocessing_is_one_of_the_data_only_if_there_is_a_preprocessing() -> None:
    data = {"layout": "alpaca", "min_chars": 3, "columns": {"prompt": "q"}}
    found = phases(data=data, preprocesses=True)
    assert found.data.given_values() == {"layout": "alpaca", "trainer": "sft", "max_length": 1024}
    assert found.preprocessing.given_values() == {"min_chars": 3, "columns": {"prompt": "q"}}
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
    data = phases(**form).data.given_values()
    assert {name: data[name] for name in ("max_length", "report_mode") if name in data} == learnt


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"training": {"restarts": 1}}, r"training\.restarts: unknown setting; it is training\.limits\.restarts"),
        (
            {"training": {"learning_rate": 1}},
            r"training\.learning_rate: a setting of the builtin trainer, which is given in settings",
        ),
        ({"training": {"limits": {"restart": 1}}}, r"training\.limits\.restart: unknown; did you mean restarts\?"),
        ({"training": {"data": {"metadata_loc": "x"}}}, r"training\.data\.metadata_loc: "),
        ({"queue_name": "a", "training": {"placement": {"queue_name": "b"}}}, r"training\.placement\.queue_name: given twice"),
        ({"hub_secret": "a", "training": {"secrets": {"hub_secret": "b"}}}, r"training\.secrets\.hub_secret: given twice"),
        ({"training": {"job": {"limits": {"restarts": -1}}}}, r"training\.job\.limits\.restarts: expected at least 1"),
        ({"training": {"runs_on": "moon"}}, r"training\.runs_on: expected auto, worker or cluster"),
        ({"training": {"imagee": "x"}}, r"training\.imagee: unknown setting; did you mean image\?"),
        ({"training": {"workspace": "x"}}, r"training\.workspace: the pipeline sets it"),
        ({"training": {"num_nodes": -1}}, r"training\.num_nodes: expected at least 1"),
        ({"training": "[1]"}, "training: expected an object"),
        ({"training": {"code": "x"}}, r"training\.command: required with code"),
        ({"epochs": 2, "training": {"settings": {"epochs": 3}}}, "epochs: given twice"),
        ({"num_nodes": 2, "training": {"num_nodes": 3}}, r"training\.num_nodes: given twice"),
        ({"epochs": 2, "training": {"code": "x", "command": ["a"]}}, r"epochs: .*training\.code is a program"),
        ({"learning_rate": -1}, r"learning_rate"),
        ({"data": {"test_fraction": 2}}, r"data\.test_fraction: expected a number from 0 to less than 1"),
        ({"data": {"dataset_uri": "x"}}, r"data\.dataset_uri: the pipeline sets it"),
        ({"data": {"trainer": "sft"}}, r"data\.trainer: the pipeline sets it"),
        ({"training": {"builtin": "dop"}}, r"builtin: 'dop' is not installed; did you mean dpo\?"),
        ({"evaluation": {"few_shot": 1}}, r"evaluation\.few_shot: unknown setting"),
        ({"evaluation": {"limits": {"restarts": -1}}}, r"evaluation\.limits\.restarts: expected at least 1"),
        ({"evaluation": {"placement": {"priority_class": "p"}}}, r"evaluation\.placement\.priority_class: requires a queue"),
        ({"evaluation": {"max_row": 1}}, r"evaluation\.max_row: unknown setting; did you mean max_rows\?"),
        ({"evaluation": {"promote_margin": "much"}}, r"evaluation\.promote_margin: expected a number"),
        ({"evaluation": {"keep_exports": 1}}, r"evaluation\.keep_exports: unknown setting"),
    ],
)
def test_invalid_settings_are_named_with_their_place(form: dict[str, Any], said: str) -> None:
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
    assert (phases(**form).data.trainer or None) == trainer


def test_secrets_of_the_training_are_those_of_every_step_on_the_cluster() -> None:
    secrets = {"store_secret": "store", "hub_secret": "hub"}
    assert phases(training={"secrets": secrets}).job.given_values() == {"secrets": secrets}
    assert phases(**secrets).job.given_values() == {"secrets": secrets}
    assert phases(**secrets).training.given_values() == {"secrets": secrets}
    other = phases(training={"secrets": secrets, "job": {"secrets": {"store_secret": "other"}}}).job
    assert other.given_values() == {"secrets": {"store_secret": "other", "hub_secret": "hub"}}
    assert phases(training={"secrets": {"model_secret": "m"}}).job.given == set()


@pytest.mark.parametrize("structure", [{"env": {"AWS_SECRET_ACCESS_KEY": "abc"}}, {"job": {"env": {"DB_PASSWORD": "abc"}}}])
def test_literal_credential_is_refused(structure: dict[str, Any]) -> None:
    with pytest.raises(LiteralSecret):
        phases(training=structure)
    with pytest.raises(LiteralSecret):
        phases(evaluation={"env": {"DB_PASSWORD": "abc"}})
    with pytest.raises(LiteralSecret):
        phases(data={"layout": "https://me:hunter2@host/x"})


def test_training_names_the_run_before_what_was_given_apart() -> None:
    found = phases(place={"run_id": "r", "namespace": "", "workspace_path": "/mnt"}, training={"run_id": "mine"})
    assert (found.run_id, found.workspace_path, found.namespace) == ("mine", "/mnt", "")


def test_run_that_is_read_again_is_the_same() -> None:
    training = {"limits": {"start_timeout_seconds": 0}, "ending": {"waiter_lease_seconds": 1800}, "logging": {"logs": "none"}}
    found = phases(epochs=0.5, training=training, evaluation={"logging": {"logs": "all"}, "harness": {"few_shot": 2}})
    assert Run.parse_some(found.given_values()) == found
    assert Run.parse_some(found.given_values()).given_values() == found.given_values()


NAMES = sorted({*paths_of(TrainRequest), *paths_of(EvaluateExport), *names_of(TrainRequest), *names_of(Run), "promote_alias"})


@given(st.sampled_from(NAMES), st.sampled_from(["training", "data", "evaluation"]))
def test_property_no_setting_is_left_out_in_silence(name: str, structure: str) -> None:
    """Any setting goes to a step, or is refused."""
    try:
        found = phases(**{structure: {name: "x"}})
    except ValueError:
        return
    settings = [step for step in found.given_values().values() if isinstance(step, dict)]
    everywhere = {*found.given, *(key for step in settings for key in step)}
    assert name.removeprefix("promote_") in everywhere
    assert name not in OF_THE_CHAIN


@pytest.mark.parametrize("form", [FineTuning, Retraining, Sweep, FullPipeline])
def test_a_form_has_few_fields_each_with_a_description(form: Any) -> None:
    fields = settings_of(form)
    assert len(fields) + 2 <= MOST_FIELDS, "with the connections or Secrets"
    for field in fields.values():
        assert field.description.endswith("."), field.name
        assert field.section[0].isupper(), field.name


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
        assert phases(training=training, evaluation={"which": "best"}).export.which == "best"
