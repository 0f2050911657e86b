"""The tasks of a retraining: which settings a run has, when it trains, where it starts, what it compares, promotes and announces."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
from jinja2.nativetypes import NativeEnvironment
from support.on_first_use import OnFirstUse

sdk = OnFirstUse("airflow.sdk")
sdk_exceptions = OnFirstUse("airflow.sdk.exceptions")
retraining = OnFirstUse("trainwright.example_dags.retraining")
airflow_api = OnFirstUse("trainwright.operators.values.airflow_api")

pytestmark = pytest.mark.medium
DIGEST = "sha256:" + "a" * 64
BASE = "sha256:" + "b" * 64
NO_CHAMPION = {
    "state": "none",
    "reason": "",
    "training_digest": "t",
    "uri": "",
    "digest": "",
    "dataset_digest": "",
    "model_digest": "",
}
OUTDATED = {
    "reason": "",
    "training_digest": "t",
    "state": "outdated",
    "uri": "s3://b/e/old/checkpoint-5",
    "digest": "sha256:o",
    "dataset_digest": "x",
    "model_digest": BASE,
}


def rendered(name: str, params: dict[str, Any], variable: dict[str, Any] | None) -> Any:
    values = {"trainwright_retraining": variable} if variable is not None else {}
    context = {"params": {**{key: param.value for key, param in retraining.RETRAINING.items()}, **params}}
    return NativeEnvironment().from_string(retraining.setting(name)).render(**context, var=SimpleNamespace(json=values))


@pytest.mark.parametrize(
    ("name", "params", "variable", "found"),
    [
        ("dataset_uri", {"dataset_uri": "s3://b/mine"}, {"dataset_uri": "s3://b/weekly"}, "s3://b/mine"),
        ("dataset_uri", {}, {"dataset_uri": "s3://b/weekly"}, "s3://b/weekly"),
        ("dataset_uri", {}, {"dataset_uri": None}, ""),
        ("dataset_uri", {}, {}, ""),
        ("dataset_uri", {}, None, ""),
        ("promote", {"promote": "better"}, {"promote": "always"}, "better"),
        ("promote", {}, {"promote": "always"}, "always"),
        ("promote", {}, None, "better"),
        ("always_train", {"always_train": "false"}, {"always_train": True}, "false"),
        ("always_train", {"always_train": False}, {"always_train": True}, False),
        ("num_nodes", {"num_nodes": 0}, {"num_nodes": 4}, 0),
        ("num_nodes", {}, {"num_nodes": 4}, 4),
        ("training", {"training": {}}, {"training": {"logs": "all"}}, {}),
        ("training", {}, {"training": {"logs": "all"}}, {"logs": "all"}),
        ("warm_start", {}, {"warm_start": True}, True),
        ("learning_rate", {}, None, 0.0),
    ],
)
def test_setting_is_that_of_the_form_else_of_the_variable_else_the_default(
    name: str, params: Any, variable: Any, found: Any
) -> None:
    value = rendered(name, params, variable)
    assert (value, type(value)) == (found, type(found))


def test_form_sends_no_setting_that_nobody_has_chosen() -> None:
    """Airflow's form sends all fields: those of settings are empty, and say what that means."""
    for name, default in retraining.SETTINGS.items():
        field = retraining.RETRAINING[name]
        assert field.resolve() is None
        assert "as the Variable trainwright_retraining says" in str(field.description)
        if default.value not in ("", [], {}):
            assert "says, else " in str(field.description)
    assert str(retraining.RETRAINING["promote"].description).endswith(
        ". Empty: as the Variable trainwright_retraining says, else better."
    )
    assert retraining.RETRAINING["promote"].schema["enum"] == [None, "better", "always", "never"]


@pytest.mark.parametrize("given", ["true", "false", True, False, None])
def test_flag_in_the_form_is_true_false_or_empty(given: Any) -> None:
    """A boolean would be a switch, which shows `false` for an empty value."""
    field = copy.copy(retraining.RETRAINING["always_train"])  # resolving stores the value
    assert field.resolve(given) is given
    assert field.schema["type"][0] == "string"
    with pytest.raises(sdk_exceptions.ParamValidationError):
        field.resolve("yes")


def test_first_task_logs_which_settings_apply(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    variable(monkeypatch, '{"promote": "always", "num_nodes": 2}')
    with caplog.at_level("INFO"):
        retraining.roll_back_or_train.function("start-run", params={"roll_back": False, "promote": "better", "runtime": None})
    assert "settings of the run: promote" in caplog.text
    assert "settings of the Variable trainwright_retraining: num_nodes" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"promot": "always"}', "the setting 'promot' is unknown; did you mean promote?"),
        ("[1]", "is no JSON object but a list"),
        ('{"promote": ', "is not JSON: "),
    ],
)
def test_variable_that_would_be_ignored_fails_without_retries(monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    variable(monkeypatch, text)
    with pytest.raises(airflow_api.AirflowFailException, match="the Variable trainwright_retraining") as raised:
        retraining.roll_back_or_train.function("start-run", params={"roll_back": False})
    assert said in str(raised.value)


def variable(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    monkeypatch.setattr(sdk.Variable, "get", lambda _name, **_options: text)


class Instance:
    """A task instance: what the tasks before it returned, and what it says of itself."""

    def __init__(self, **returned: Any):
        self.returned, self.said = returned, dict[str, Any]()

    def xcom_pull(self, task_ids: str) -> Any:
        return self.returned[task_ids.replace("-", "_")]

    def xcom_push(self, key: str, value: Any) -> None:
        self.said[key] = value


def gate(
    earlier: list[dict[str, Any]], *, always_train: Any = False, champion: dict[str, str] = NO_CHAMPION
) -> tuple[Any, Instance]:
    prepared = {"initialize_dataset": {"digest": DIGEST}, "initialize_model": {"digest": BASE}}
    instance = Instance(**prepared, read_champion=champion)
    events = {retraining.MODEL: [SimpleNamespace(extra=extra) for extra in earlier]}
    try:
        return retraining.new_data.function(always_train, ti=instance, inlet_events=events), instance
    except airflow_api.AirflowSkipException as skipped:
        return skipped, instance


@pytest.mark.parametrize(
    ("earlier", "always_train"),
    [
        ([], False),
        ([{"dataset_digest": "sha256:other", "run": "r"}], False),
        ([{"dataset_digest": DIGEST, "run": "older"}, {"dataset_digest": "sha256:other", "run": "last"}], False),
        ([{"dataset_digest": DIGEST, "model_digest": "sha256:other", "run": "r"}], False),
        ([{"dataset_digest": DIGEST, "run": "r"}], True),
        ([{"dataset_digest": DIGEST, "run": "r"}], "true"),
        ([{"note": "somebody else's event"}], False),
        ([{"dataset_digest": DIGEST, "training_digest": "other", "run": "r"}], False),
    ],
)
@pytest.mark.parametrize("champion", [NO_CHAMPION, OUTDATED])
def test_new_data_are_trained_on(earlier: list[dict[str, Any]], always_train: Any, champion: dict[str, str]) -> None:
    assert gate(earlier, always_train=always_train, champion=champion)[0] == DIGEST


def test_the_dataset_of_the_last_good_run_is_skipped_with_the_reason() -> None:
    skipped, instance = gate([{"dataset_digest": DIGEST, "run": "of-monday"}, {"note": "somebody else's"}], champion=OUTDATED)
    assert isinstance(skipped, airflow_api.AirflowSkipException)
    assert str(skipped) == instance.said["reason"] == f"the run of-monday was trained on the same dataset, {DIGEST}"


def test_the_dataset_of_the_champion_is_skipped_whoever_trained_it() -> None:
    skipped, _ = gate([], champion={**OUTDATED, "state": "current", "reason": "it has trained them"})
    assert str(skipped) == "it has trained them"


@pytest.mark.parametrize(
    ("rule", "champion", "expected"),
    [
        ("better", OUTDATED, "evaluate-champion"),
        ("better", NO_CHAMPION, "promote"),
        ("always", OUTDATED, "promote"),
        ("never", OUTDATED, "publish"),
    ],
)
def test_the_champion_is_measured_only_to_be_compared_with(rule: str, champion: dict[str, str], expected: str) -> None:
    assert retraining.decide.function(rule, ti=Instance(read_champion=champion)) == expected


@pytest.mark.parametrize(("given", "expected"), [(True, "roll-back"), (False, "start-run")])
def test_a_run_rolls_back_or_trains(monkeypatch: pytest.MonkeyPatch, given: bool, expected: str) -> None:
    variable(monkeypatch, None)
    assert retraining.roll_back_or_train.function("start-run", params={"roll_back": given}) == expected


@pytest.mark.parametrize(
    "decided", [None, {"promoted": True, "reason": "better", "champion_uri": "s3://b/e", "previous_uri": ""}]
)
def test_a_good_run_announces_its_checkpoint_its_dataset_and_what_was_decided(decided: dict[str, Any] | None) -> None:
    instance = Instance(
        new_data=DIGEST,
        initialize_model={"digest": BASE},
        export_checkpoint={"uri": "s3://b/e/checkpoint-9", "digest": "sha256:m", "step": 9},
        evaluate={"before": {"loss": 2.0}, "after": {"loss": 0.5}},
        start_run={"run_id": "weekly", "path": "/workspace"},
        read_champion={"training_digest": "t"},
        promote=decided,
    )
    events = {retraining.MODEL: SimpleNamespace(extra={})}
    retraining.publish.function("s3://b/e", "champion", ti=instance, outlet_events=events)
    assert events[retraining.MODEL].extra == {
        "run": "weekly",
        "checkpoint": "s3://b/e/checkpoint-9",
        "manifest": "sha256:m",
        "step": 9,
        "export_uri": "s3://b/e",
        "alias": "champion",
        "dataset_digest": DIGEST,
        "model_digest": BASE,
        "training_digest": "t",
        "loss_before": 2.0,
        "loss_after": 0.5,
        **(decided or {}),
    }


def test_the_exports_that_were_announced_are_kept_or_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        "trainwright.steps.checkpoints.export.delete_old_exports", lambda *a, **more: asked.append((a, more)) or ["gone"]
    )
    monkeypatch.setattr("trainwright.operators.values.allowed_places.check_places", lambda *_, **places: asked.append(places))
    extras = [{"checkpoint": "s3://b/e/r/checkpoint-9", "manifest": "sha256:m"}, {"note": "somebody else's"}]
    events = {retraining.MODEL: [SimpleNamespace(extra=extra) for extra in extras]}
    assert retraining.keep_exports.function("s3://b/e", "3", "", inlet_events=events) == ["gone"]
    assert asked == [{"export_uri": "s3://b/e"}, (("s3://b/e", [("s3://b/e/r/checkpoint-9", "sha256:m")]), {"keep": 3})]
