"""The chain of a fine-tuning as a group of tasks in a DAG of one's own."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from support.on_first_use import OnFirstUse
from support.optional_packages import require_packages

from trainwright import operators

sdk = OnFirstUse("airflow.sdk")
require_packages("airflow")

pytestmark = pytest.mark.medium
FOUR = {"dataset_uri": "hf://org/data", "model_uri": "hf://org/model", "export_uri": "s3://b/e", "workspace": "pvc://training"}


def dag_with(**settings: Any) -> Any:
    with sdk.DAG("mine", schedule=None) as dag:
        operators.finetune(**{**FOUR, **settings})
        operators.finetune("second", **FOUR)
    return dag


def test_the_tasks_are_in_the_group_and_take_each_others_results() -> None:
    dag = dag_with()
    train = dag.get_task("finetune.train")
    assert train.upstream_task_ids == {"finetune.initialize-dataset", "finetune.initialize-model"}
    assert train.dataset_digest == "{{ ti.xcom_pull('finetune.initialize-dataset')['digest'] }}"
    assert dag.get_task("second.evaluate").checkpoint_uri == "{{ ti.xcom_pull('second.export-checkpoint')['uri'] }}"
    assert dag.get_task("finetune.export-checkpoint").run == "{{ ti.xcom_pull('finetune.start-run') | tojson }}"
    assert len(dag.tasks) == 12


def test_a_function_of_the_dag_is_sent_as_its_source() -> None:
    def fit(steps: int, since: datetime, day: date | None = None) -> int:
        return steps

    arguments = {"steps": 3, "since": datetime(2026, 1, 31, tzinfo=UTC), "day": "{{ ds }}"}
    start = dag_with(training={"func": fit, "func_args": arguments}).get_task("finetune.start-run")
    assert start.training["func"].startswith("def fit(steps: int, since: datetime,")
    assert start.training["func_args"] == {"steps": 3, "since": "2026-01-31T00:00:00+00:00", "day": "{{ ds }}"}
    with pytest.raises(ValueError, match="func_args: since: expected a date with its time"):
        dag_with(training={"func": fit, "func_args": {**arguments, "since": "2026-01-31"}})


def test_without_one_of_the_four_there_is_no_chain() -> None:
    with pytest.raises(TypeError, match=r"finetune: model_uri must be set"):
        dag_with(model_uri="")
