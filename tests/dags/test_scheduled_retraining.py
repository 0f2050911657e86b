"""The weekly retraining, and the one on new data: the same chain of tasks, of which a run skips what it need not do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.on_first_use import OnFirstUse

retraining = OnFirstUse("trainwright.example_dags.retraining")
retrain_on_new_data = OnFirstUse("trainwright.example_dags.retrain_on_new_data")
scheduled_retraining = OnFirstUse("trainwright.example_dags.scheduled_retraining")
airflow_api = OnFirstUse("trainwright.operators.values.airflow_api")

pytestmark = pytest.mark.medium
MODULES = {"trainwright_retraining": scheduled_retraining, "trainwright_retrain_on_new_data": retrain_on_new_data}


@pytest.fixture(params=MODULES)
def dag(request: pytest.FixtureRequest) -> Any:
    found = MODULES[request.param].dag
    assert found.dag_id == request.param
    return found


def before(dag: Any, task: str) -> set[str]:
    found: set[str] = dag.get_task(task).upstream_task_ids
    return found


def test_one_run_at_a_time_trains_compares_and_promotes(dag: Any) -> None:
    assert dag.max_active_runs == 1
    assert not dag.catchup
    assert before(dag, "read-champion") == {"initialize-dataset", "initialize-model"}
    assert before(dag, "new-data") == {"read-champion"}
    assert before(dag, "train") == {"new-data"}
    assert before(dag, "decide") == {"evaluate"}
    assert before(dag, "evaluate-champion") == {"decide"}
    assert before(dag, "promote") == {"decide", "evaluate-champion"}
    assert before(dag, "publish") == {"decide", "promote"}
    assert before(dag, "keep-exports") == {"publish"}
    assert before(dag, "tidy") == {"start-run", "publish"}
    assert dag.get_task("publish").outlets == [retraining.MODEL]
    assert dag.get_task("new-data").inlets == dag.get_task("keep-exports").inlets == [retraining.MODEL]


def test_a_roll_back_skips_all_else(dag: Any) -> None:
    """No task runs that needs one that is skipped: the rule of these needs one success before them."""
    assert before(dag, "roll-back") == {"roll-back-or-train"}
    assert dag.get_task("roll-back").downstream_task_ids == set()
    others = {task.task_id for task in dag.tasks} - {"roll-back-or-train", "roll-back"}
    rules = {name: dag.get_task(name).trigger_rule.value for name in others}
    assert {name for name, rule in rules.items() if rule != "all_success"} == {"promote", "publish", "tidy"}
    assert {rules[name] for name in ("promote", "publish", "tidy")} == {"none_failed_min_one_success"}
    assert all(before(dag, name) <= others | {"roll-back-or-train"} for name in others)


def test_the_champion_is_measured_as_the_candidate_is_on_the_same_rows(dag: Any) -> None:
    candidate, champion = dag.get_task("evaluate"), dag.get_task("evaluate-champion")
    different = {name for name in candidate.template_fields if getattr(candidate, name) != getattr(champion, name)}
    assert different == {"checkpoint_uri", "checkpoint_digest", "dataset_digest", "run"}
    assert "initialize-dataset" in champion.dataset_digest
    assert candidate.dataset_digest == ""  # that of its training, which is the same


def test_the_schedules() -> None:
    weekly, on_data = (module.dag for module in MODULES.values())
    assert weekly.schedule == "@weekly"
    assert retrain_on_new_data.DATASET.name == "trainwright_dataset"
    assert before(weekly, "start-run") == {"roll-back-or-train"}
    assert before(on_data, "find-dataset") == {"roll-back-or-train"}
    assert before(on_data, "start-run") == {"find-dataset"}
    for name in ("initialize-dataset", "train"):
        assert on_data.get_task(name).dataset_uri == "{{ ti.xcom_pull('find-dataset') }}"


def found(*extras: dict[str, Any]) -> str:
    events = {retrain_on_new_data.DATASET: [SimpleNamespace(extra=extra) for extra in extras]} if extras else {}
    uri: str = retrain_on_new_data.find_dataset.function("s3://b/set", triggering_asset_events=events)
    return uri


def test_the_dataset_is_that_of_the_last_event_that_names_one_else_the_one_that_is_set() -> None:
    assert found() == "s3://b/set"
    assert found({}) == "s3://b/set"
    assert found({"dataset_uri": "s3://b/1"}, {"dataset_uri": "hf://org/data@main"}, {"rows": 3}) == "hf://org/data@main"


@pytest.mark.parametrize("uri", ["/etc/passwd", "ftp://x/y", "s3://", 7, ["s3://b/x"]])
def test_an_event_that_names_no_dataset_fails_without_retries(uri: Any) -> None:
    with pytest.raises(airflow_api.AirflowFailException, match="dataset_uri of the event of the asset trainwright_dataset: "):
        found({"dataset_uri": uri})
