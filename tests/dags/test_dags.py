"""The DAGs load, chain what they say, and render: every template names a task before it, and a value that this task returns."""

from __future__ import annotations

import copy
import json
import re
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jinja2 import StrictUndefined
from support.example_dags import DAG_IDS
from support.on_first_use import OnFirstUse

from trainwright.jobs import StepResult
from trainwright.jobs.request.setting_values import parse_structure
from trainwright.steps import chain
from trainwright.steps.requests.forms import MOST_FIELDS

sdk_exceptions = OnFirstUse("airflow.sdk.exceptions")

pytestmark = pytest.mark.medium
RETRAINING = ("retrain_on_new_data", "scheduled_retraining")
PLACES = ("dataset_uri", "model_uri", "export_uri", "workspace")
"""What a person must know; Airflow opens no section with a name, so that they are in none."""
DATA, BASE = (f"sha256:{digit * 64}" for digit in "12")
FIGURES = {"loss": 1.0, "perplexity": 3.0}
RETURNED: dict[str, Any] = {
    "start-run": {
        **{"run_id": "r", "claim": "c", "workspace": "pvc://c", "workspace_path": "/mnt"},
        "training": {"image": "train:1", "settings": {"epochs": 2}},
        "data": {"layout": "alpaca"},
        "evaluation": {"retention": "keep=5"},
        "promotion": {"margin": 0.1},
        "own": {"keep_exports": 3},
    },
    "initialize-dataset": {"source": "s", "revision": "", "digest": DATA, "train_rows": 9, "test_rows": 1},
    "initialize-model": {"source": "s", "revision": "", "digest": BASE, "shape": {"parameters": 5}},
    "find-dataset": "s3://b/data",
    "read-champion": {"state": "outdated", "uri": "s3://b/e/o/checkpoint-5", "digest": "sha256:o"}
    | {"start_from": "weights:s3://b/e/o/checkpoint-5"},
    "train": {
        "trainjob": "job",
        "namespace": "default",
        "metrics": {},
        "results": None,
        "folder": "runs/r",
        "usage": {"node_hours": 1.0},
    },
    "export-checkpoint": {"uri": "s3://b/e/r/checkpoint-9", "digest": "sha256:x", "step": 9, "bytes": 1},
    "evaluate": {"before": FIGURES, "after": FIGURES, "rows": 1, "held_out": True, "dataset_digest": DATA, "evaluation": {}},
    "evaluate-champion": {"before": FIGURES, "after": FIGURES, "rows": 1, "held_out": True, "dataset_digest": DATA},
    "pull-dvc-data": {"data_uri": "file:///mnt/dvc/data/1", "digest": DATA, "revision": "", "md5": "m", "size": 1},
    "preprocess-dataset": {"data_uri": "file:///mnt/preprocessed/2", "digest": DATA, "rows_in": 2, "rows_out": 1, "dropped": {}},
    "plan-trials": [{"index": 0, "settings": {"learning_rate": 0.1}}, {"index": 1, "settings": {"learning_rate": 0.2}}],
    "pick-trial": {"index": 1, "trainjob": "job-1", "value": 1.0, "settings": {"learning_rate": 0.2}, "summary": ""},
    "candidate": {"checkpoint": "s3://b/e", "manifest": "sha256:x", "run": "r", "step": 9, "loss_before": 4.0, "loss_after": 1.0}
    | {"export_uri": "s3://b/e", "alias": "champion"},
}


TABLES = {"finetune": chain.FINETUNING, "full_pipeline": chain.FULL, "sweep": chain.SWEEP} | dict.fromkeys(
    RETRAINING, chain.RETRAINING
)
TASKS = {"promote-model": "promote", "promote-over-champion": "promote", "register-model": "register"}
LEFT_OUT = {"sweep": {"register-model"}} | {name: {"promote-model", "register-model"} for name in RETRAINING}
WHOLE = {"evaluate-champion.evaluation": "evaluate-champion", "train.outcome": "train", "plan-trials.trials": "plan-trials"}
"""Results that a task takes whole, since the task may be skipped, or is mapped."""
SOURCE = re.compile(r"params\.(\w+)|xcom_pull\('([\w-]+)'(?:, key='\w+')?\)(?:(?:\[|\.get\()'(\w+)')?")


def dag_of(module: str) -> Any:
    return import_module(f"trainwright.example_dags.{module}").dag


def test_every_dag_of_the_folder_loads_without_errors_and_cycles() -> None:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(Path(dag_of("finetune").fileloc).parent, load_op_links=False)
    assert bag.import_errors == {}
    assert set(bag.dag_ids) == set(DAG_IDS.values())
    for dag in bag.dags.values():
        dag.check_cycle()


@pytest.mark.parametrize("module", DAG_IDS)
def test_its_parameters_are_valid_and_explain_themselves(module: str) -> None:
    dag = dag_of(module)
    assert dag.dag_id == DAG_IDS[module]
    assert dag.tags == {"trainwright"}
    assert len(dag.params) <= MOST_FIELDS
    for name in dag.params:
        param = dag.params.get_param(name)
        assert str(param.description)
        assert ("section" in param.schema) is not (name in PLACES)
        assert param.schema["title"]


ZERO_IS_THE_DEFAULT = {"num_nodes", "epochs", "learning_rate", "batch_size", "max_length", "max_trials"}


@pytest.mark.parametrize("module", DAG_IDS)
def test_numbers_are_empty_where_zero_stands_for_a_default(module: str) -> None:
    dag = dag_of(module)
    numbers = ZERO_IS_THE_DEFAULT & set(dag.params)
    for param in map(dag.params.get_param, numbers):
        assert param.value is None
        assert param.resolve(suppress_exception=False) is None
        says = "Empty: as the Variable" if module in RETRAINING else "Empty or 0: "
        assert says in str(param.description)
    assert not [name for name in set(dag.params) - numbers if " 0: " in str(dag.params.get_param(name).description)]
    dag.params.validate()


@pytest.mark.parametrize("module", DAG_IDS)
def test_serialized_dag_stays_small(module: str) -> None:
    """Every parameter once: Airflow stores those of the DAG with each of its tasks."""
    from airflow.serialization.serialized_objects import DagSerialization

    assert len(json.dumps(DagSerialization.to_dict(dag_of(module)))) < 40_000


class Before:
    """The task instances before a task: what they returned. Asking one that need not have ended is an error."""

    def __init__(self, task: Any) -> None:
        self.task, self.asked = task, set[str]()

    def xcom_pull(self, task_ids: str, key: str = "return_value") -> Any:
        assert task_ids in self.task.get_flat_relative_ids(upstream=True), f"{self.task.task_id} asks {task_ids}"
        self.asked.add(task_ids)
        return RETURNED[task_ids]


@pytest.mark.parametrize(
    "variable", [None, {"export_uri": "s3://b/e", "num_nodes": 4, "warm_start": True, "training": {"env": {"A": "b"}}}]
)
@pytest.mark.parametrize("module", DAG_IDS)
def test_every_template_renders(module: str, variable: dict[str, Any] | None) -> None:
    dag = dag_of(module)
    env = dag.get_template_env()
    env.undefined = StrictUndefined
    settings = {"trainwright_retraining": variable} if variable is not None else {}
    rendered = dict[str, Any]()
    for each in dag.tasks:
        task = each.unmap({"trial": RETURNED["plan-trials"][1]}) if each.is_mapped else each
        if not hasattr(task, "python_callable") or task.op_args or task.op_kwargs:
            before = Before(task)
            params = {name: dag.params[name] for name in dag.params}
            context = {"params": params, "ti": before, "var": SimpleNamespace(json=settings), "dag": dag}
            clone = copy.copy(task)
            clone.render_template_fields(context, env)
            rendered[task.task_id] = clone
    texts = [str(getattr(task, field)) for task in rendered.values() for field in task.template_fields]
    assert not [text for text in texts if "{{" in text or "{%" in text]
    if "train" in rendered:
        train, evaluate = rendered["train"], rendered["evaluate"]
        assert train.dataset_digest == DATA
        assert parse_structure(train.data["model_shape"]) == {"parameters": 5}
        assert evaluate.checkpoint_uri == "s3://b/e/r/checkpoint-9"
        assert parse_structure(train.run) == parse_structure(evaluate.run) == RETURNED["start-run"]
    if module == "finetune":
        assert (rendered["start-run"].num_nodes, rendered["start-run"].learning_rate) == (0, 0.0), "an empty field is 0"
    if module in RETRAINING:
        assert rendered["promote"].export_uri == (variable or {}).get("export_uri", "")
        assert rendered["train"].resume == "weights:s3://b/e/o/checkpoint-5"
        run = parse_structure(rendered["evaluate-champion"].run)
        assert run == {**RETURNED["start-run"], "evaluation": {**RETURNED["start-run"]["evaluation"], "retention": "always"}}
        start, champion = rendered["start-run"], rendered["read-champion"]
        expected = (4, {"env": {"A": "b"}}, True) if variable is not None else (0, {}, False)
        assert (start.num_nodes, start.training, champion.warm_start) == expected


def sources(value: Any) -> set[str]:
    """`FIELD`, `TASK.OUTPUT` or `TASK` that the templates of a parameter name."""
    return {field or ".".join(filter(None, (task, output))) for field, task, output in SOURCE.findall(str(value))}


def expected(given: chain.Source) -> set[str]:
    return {WHOLE.get(one, one) for one in ([given] if isinstance(given, str) else given.values())}


@pytest.mark.parametrize("module", TABLES)
def test_inputs_of_each_task_are_those_of_the_table(module: str) -> None:
    dag = dag_of(module)
    table = {step: row for step, row in TABLES[module].items() if step not in LEFT_OUT.get(module, ())}
    for step, row in table.items():
        task = dag.get_task(TASKS.get(step, step))
        if task.is_mapped:
            assert "plan-trials" in task.upstream_task_ids
            task = task.unmap({"trial": "{{ ti.xcom_pull('plan-trials') }}"})
        for name, given in row.of_values.items():
            if (module, name) != ("retrain_on_new_data", "dataset_uri"):  # that of the asset's event
                assert sources(getattr(task, name)) == expected(given), (step, name)
        others = {name for name in task.template_fields if name not in row.of_values}
        assert {name for name in others if "xcom_pull" in str(getattr(task, name))} <= {"run", "trials"}, step
        for earlier in chain.predecessors(TABLES[module], step):
            assert TASKS.get(earlier, earlier) in task.get_flat_relative_ids(upstream=True), (step, earlier)


@pytest.mark.parametrize("module", TABLES)
def test_outputs_in_the_table_are_documented_by_the_operators_that_return_them(module: str) -> None:
    taken = [expected(given) for row in TABLES[module].values() for given in row.of_values.values()]
    for step, _, output in (one.rpartition(".") for one in set().union(*taken)):
        if step == "train":
            assert output in vars(StepResult("", "")), output
        elif step:
            docs = str(type(dag_of(module).get_task(TASKS.get(step, step))).__doc__)
            assert re.search(rf"\b{output}\b", docs.partition(":return:")[2]), (step, output)


def test_its_parameters_are_those_of_the_quickstart() -> None:
    from dataclasses import fields

    from trainwright.quickstart.orchestrators import Parameters

    assert {field.name for field in fields(Parameters)} <= set(dag_of("finetune").params)


def test_the_sweep_trains_its_trials_beside_each_other_and_exports_the_best() -> None:
    from trainwright.example_dags.sweep import PARALLELISM
    from trainwright.operators import TrainTrialOperator

    dag = dag_of("sweep")
    train, pick = dag.get_task("train"), dag.get_task("pick-trial")
    assert train.is_mapped
    assert train.operator_class is TrainTrialOperator
    assert train.partial_kwargs["max_active_tis_per_dagrun"] == PARALLELISM
    assert "settings" not in train.partial_kwargs, "the plan has the common settings"
    assert train.upstream_task_ids == dag.get_task("stop-hopeless-trials").upstream_task_ids == {"plan-trials"}
    assert pick.trigger_rule == "all_done"
    assert pick.upstream_task_ids == {"train", "stop-hopeless-trials"}
    assert dag.get_task("export-checkpoint").trial_index == dag.get_task("evaluate").trial_index


def test_how_many_trials_train_at_once_is_read_from_the_environment() -> None:
    import os
    import subprocess
    import sys

    program = (
        "from trainwright.example_dags.sweep import dag; print(dag.get_task('train').partial_kwargs['max_active_tis_per_dagrun'])"
    )
    environ = {**os.environ, "TRAINWRIGHT_PARALLELISM": "7"}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "7"


def test_the_full_pipeline_chains_a_tool_for_each_part() -> None:
    from trainwright.example_dags.form import parameters

    dag = dag_of("full_pipeline")
    assert dag.get_task("promote").upstream_task_ids == {"whether-to-promote"}
    assert dag.get_task("register").upstream_task_ids == {"whether-to-register"}
    assert dag.get_task("train").tracking == parameters("FullPipeline")["tracking"]


@pytest.mark.parametrize("module", DAG_IDS)
def test_a_run_can_be_started_from_the_form_with_what_it_needs(module: str) -> None:
    """The form takes texts for required unless they may be null."""
    dag = dag_of(module)
    texts = [name for name in dag.params if "string" in dag.params.get_param(name).schema.get("type", "string")]
    required = {
        name for name in texts if "null" not in dag.params.get_param(name).schema.get("type", "string") and not dag.params[name]
    }
    needed = {
        "finetune": {"dataset_uri", "model_uri", "export_uri", "workspace"},
        "sweep": {"dataset_uri", "model_uri", "export_uri", "workspace"},
        "full_pipeline": {"model_uri", "export_uri", "workspace"},
    }
    assert required == needed.get(module, set())


@pytest.mark.parametrize("module", ["finetune", "scheduled_retraining"])
def test_empty_form_fields_become_empty_texts(module: str) -> None:
    dag = dag_of(module)
    left = {name for name in dag.params if "null" in (dag.params.get_param(name).schema.get("type") or ())}
    params = {name: None if name in left else dag.params[name] for name in dag.params}
    start = copy.copy(dag.get_task("start-run"))
    context = {"params": params, "var": SimpleNamespace(json={}), "ti": None}
    start.render_template_fields(context, dag.get_template_env())
    assert (start.runtime, start.queue_name, start.conn_id, start.num_nodes) == ("", "", "", 0)


@pytest.mark.parametrize(("module", "name"), [("sweep", "trials"), ("full_pipeline", "tracking")])
def test_lists_may_be_json_text(module: str, name: str) -> None:
    """The form has one line for each text of a list, unless the type of the entries says otherwise."""
    param = dag_of(module).params.get_param(name)
    assert "Example: [" in param.description or param.value
    for value in ([{"a": 1}], '[{"a": 1}]', "", None, []):
        assert copy.copy(param).resolve(value) == value
    for value in ("a", '{"a": 1}', "[1"):
        with pytest.raises(sdk_exceptions.ParamValidationError):
            copy.copy(param).resolve(value)
