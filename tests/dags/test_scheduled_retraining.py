"""The weekly retraining: which settings a run has, when it is skipped, what it announces, what it leaves behind."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException
from jinja2.nativetypes import NativeEnvironment

from trainwright.workspace import RUNS, begin_run, end_run, read_run, run_folder

pytestmark = pytest.mark.medium
DIGEST = "sha256:" + "a" * 64


@pytest.fixture(scope="module")
def module() -> Any:
    from trainwright.example_dags import scheduled_retraining

    return scheduled_retraining


def rendered(module: Any, name: str, params: dict[str, Any], variable: dict[str, Any] | None) -> Any:
    values = {"trainwright_retraining": variable} if variable is not None else {}
    context = {"params": {**{key: param.value for key, param in module.PARAMETERS.items()}, **params}}
    return NativeEnvironment().from_string(module.setting(name)).render(**context, var=SimpleNamespace(json=values))


@pytest.mark.parametrize(
    ("params", "variable", "found"),
    [
        ({"dataset_uri": "s3://b/mine"}, {"dataset_uri": "s3://b/weekly"}, "s3://b/mine"),
        ({}, {"dataset_uri": "s3://b/weekly"}, "s3://b/weekly"),
        ({}, {}, ""),
        ({}, None, ""),
    ],
)
def test_a_run_takes_its_parameter_else_the_variable(module: Any, params: Any, variable: Any, found: str) -> None:
    assert rendered(module, "dataset_uri", params, variable) == found


def test_settings_keep_their_types(module: Any) -> None:
    assert rendered(module, "num_nodes", {}, {"num_nodes": 4}) == 4
    assert rendered(module, "num_nodes", {}, None) == 0
    assert rendered(module, "env", {}, {"env": {"A": "b"}}) == {"A": "b"}
    assert rendered(module, "workspace_path", {}, None) == ""


def test_it_runs_weekly_one_at_a_time_and_in_order(module: Any) -> None:
    dag = module.dag
    assert dag.max_active_runs == 1
    assert not dag.catchup
    assert [task.task_id for task in dag.topological_sort()] == [
        "start-run",
        "initialize-dataset",
        "new-data",
        "initialize-model",
        "train",
        "export-checkpoint",
        "evaluate",
        "publish",
        "tidy",
    ]
    assert dag.get_task("publish").outlets == [module.MODEL]


class Instance:
    """A task instance: what the tasks before it returned, and what it says of itself."""

    def __init__(self, **returned: Any):
        self.returned, self.said = returned, {}

    def xcom_pull(self, task_ids: str) -> Any:
        return self.returned[task_ids.replace("-", "_")]

    def xcom_push(self, key: str, value: Any) -> None:
        self.said = {**self.said, key: value}


def gate(module: Any, earlier: list[dict[str, Any]], *, force: bool = False) -> tuple[Any, Instance]:
    instance = Instance(initialize_dataset={"digest": DIGEST})
    events = {module.MODEL: [SimpleNamespace(extra=extra) for extra in earlier]}
    call = module.dag.get_task("new-data").python_callable
    try:
        return call(ti=instance, params={"force": force}, inlet_events=events), instance
    except AirflowSkipException as skipped:
        return skipped, instance


@pytest.mark.parametrize(
    ("earlier", "force"),
    [
        ([], False),
        ([{"dataset_digest": "sha256:other", "run": "r"}], False),
        ([{"dataset_digest": DIGEST, "run": "older"}, {"dataset_digest": "sha256:other", "run": "last"}], False),
        ([{"dataset_digest": DIGEST, "run": "r"}], True),
        ([{"note": "somebody else's event"}], False),
    ],
)
def test_new_data_are_trained_on(module: Any, earlier: list[dict[str, Any]], force: bool) -> None:
    assert gate(module, earlier, force=force)[0] == DIGEST


def test_the_dataset_of_the_last_good_run_is_skipped_with_the_reason(module: Any) -> None:
    skipped, instance = gate(module, [{"dataset_digest": DIGEST, "run": "of-monday"}, {"note": "somebody else's"}])
    assert isinstance(skipped, AirflowSkipException)
    assert str(skipped) == instance.said["reason"] == f"the run of-monday was trained on the same dataset, {DIGEST}"


def test_a_good_run_announces_its_checkpoint_and_its_dataset(module: Any) -> None:
    instance = Instance(
        new_data=DIGEST,
        export_checkpoint={"uri": "s3://b/e/checkpoint-9", "digest": "sha256:m", "step": 9},
        evaluate={"before": {"loss": 2.0}, "after": {"loss": 0.5}},
        start_run={"run_id": "weekly", "path": "/workspace"},
    )
    events = {module.MODEL: SimpleNamespace(extra={})}
    call = module.dag.get_task("publish").python_callable
    call(ti=instance, outlet_events=events)
    assert events[module.MODEL].extra == {
        "run": "weekly",
        "checkpoint": "s3://b/e/checkpoint-9",
        "manifest": "sha256:m",
        "step": 9,
        "dataset_digest": DIGEST,
        "loss_before": 2.0,
        "loss_after": 0.5,
    }


def test_tidying_ends_the_run_and_keeps_what_retention_says(module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a skipped run; a live run, and what is no run, stay."""
    for name in ("monday", "tuesday", "now"):
        begin_run(
            tmp_path,
            run_folder(name),
            run=name,
            owner="airflow/d",
            now=lambda name=name: f"2026-01-0{len(name) % 7 + 1}T00:00:00Z",
        )
    for name in ("monday", "tuesday", "now"):
        (tmp_path / run_folder(name) / "output").mkdir()
    for name in ("monday", "tuesday"):
        end_run(tmp_path, run_folder(name))
    (tmp_path / RUNS / "notes.txt").touch()
    cluster = SimpleNamespace(default_namespace="default", list=lambda *_: SimpleNamespace(items=[]))
    monkeypatch.setattr("trainwright.operators.hook.TrainwrightHook.get_conn", lambda _self: cluster)
    call = module.dag.get_task("tidy").python_callable
    instance = Instance(start_run={"run_id": "now", "path": str(tmp_path)})
    assert call("", "", "keep=1", ti=instance) == ["monday"]
    assert call("", "", "always", ti=instance) == []
    assert sorted(path.name for path in (tmp_path / RUNS).iterdir() if path.name[0] != ".") == ["notes.txt", "now", "tuesday"]
    record = read_run(tmp_path / run_folder("now"))
    assert record is not None
    assert record.ended
