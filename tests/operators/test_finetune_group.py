"""The chain of a fine-tuning as a group of tasks in a DAG of one's own."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow.sdk import DAG

from trainwright.operators import finetune

pytestmark = pytest.mark.medium
FOUR = {"dataset_uri": "hf://org/data", "model_uri": "hf://org/model", "export_uri": "s3://b/e", "workspace": "pvc://training"}


def dag_with(**settings: Any) -> Any:
    with DAG("mine", schedule=None) as dag:
        finetune(**{**FOUR, **settings})
        finetune("second", **FOUR)
    return dag


def test_the_tasks_are_in_the_group_and_take_each_others_results() -> None:
    dag = dag_with()
    train = dag.get_task("finetune.train")
    assert train.upstream_task_ids == {"finetune.initialize-dataset", "finetune.initialize-model"}
    assert train.dataset_digest == "{{ ti.xcom_pull('finetune.initialize-dataset')['digest'] }}"
    assert dag.get_task("second.evaluate").checkpoint_uri == "{{ ti.xcom_pull('second.export-checkpoint')['uri'] }}"
    assert dag.get_task("finetune.export-checkpoint").workspace_path == "{{ ti.xcom_pull('finetune.start-run')['path'] }}"
    assert len(dag.tasks) == 12


def test_settings_go_where_they_belong() -> None:
    dag = dag_with(
        layout="alpaca",
        settings={"max_steps": 5},
        image="train:1",
        evaluation_image="evaluate:1",
        max_evaluation_rows=7,
        runs_on="cluster",
        conn_id="cluster",
        retries=2,
    )
    train, evaluate = dag.get_task("finetune.train"), dag.get_task("finetune.evaluate")
    assert (train.settings, train.image, train.conn_id, train.retries) == ({"max_steps": 5}, "train:1", "cluster", 2)
    assert (evaluate.image, evaluate.max_rows, evaluate.runs_on, evaluate.retries) == ("evaluate:1", 7, "cluster", 2)
    assert dag.get_task("finetune.initialize-dataset").layout == "alpaca"
    assert dag.get_task("finetune.start-run").workspace == "pvc://training"


@pytest.mark.parametrize("name", FOUR)
def test_without_one_of_the_four_there_is_no_chain(name: str) -> None:
    with pytest.raises(TypeError, match=rf"finetune: {name} must be set"):
        dag_with(**{name: ""})


def test_a_misspelt_setting_is_refused() -> None:
    with pytest.raises(TypeError, match="layuot"):
        dag_with(layuot="alpaca")
