"""The provider: described without importing Airflow, loaded lazily, and a task's identity through retries and clears."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

import trainwright.operators
from trainwright.operators.values.task_identity import earlier_identities, task_identity

OPERATORS = [name for name in trainwright.operators.__all__ if name.endswith("Operator")]


def loaded(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sorted(sys.modules))"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_provider_information_imports_nothing() -> None:
    modules = loaded("import trainwright.operators.provider_info as p; assert p.get_provider_info()['name'] == 'Trainwright'")
    assert not {name for name in modules if name.split(".")[0] in ("airflow", "kubernetes", "pydantic")}


def test_every_module_of_the_provider_information_exists() -> None:
    from importlib.util import find_spec

    from trainwright.operators.provider_info import get_provider_info

    info = get_provider_info()
    named = [module for entry in [*info["operators"], *info["hooks"], *info["triggers"]] for module in entry["python-modules"]]
    assert all(find_spec(name) for name in named)


@pytest.mark.medium
def test_operators_load_without_kubernetes_torch_or_the_cncf_provider() -> None:
    modules = loaded("from trainwright.operators import " + ", ".join(OPERATORS))
    assert "airflow.sdk" in modules
    assert not {name for name in modules if name.split(".")[0] in ("kubernetes", "torch", "kfp")}
    assert not {name for name in modules if name.startswith("airflow.providers.cncf")}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoSuchOperator"):
        trainwright.operators.NoSuchOperator  # noqa: B018
    assert set(OPERATORS) <= set(dir(trainwright.operators))


def context(*, retries: int = 2, max_tries: int = 2, map_index: int = -1, run_id: str = "r") -> dict[str, Any]:
    ti = SimpleNamespace(dag_id="d", task_id="train", run_id=run_id, map_index=map_index, max_tries=max_tries)
    return {"ti": ti, "task": SimpleNamespace(retries=retries)}


def test_a_retry_is_the_same_step_and_a_clear_is_a_new_one() -> None:
    first = task_identity(context())
    assert task_identity(context()) == first
    assert task_identity(context(max_tries=3)) != first
    assert task_identity(context(map_index=0)) != first
    assert task_identity(context(run_id="other")) != first


def test_a_named_run_stands_in_for_the_dag_run() -> None:
    assert task_identity(context(run_id="a"), "mine") == task_identity(context(run_id="b"), "mine")


def test_what_a_cleared_task_was_before() -> None:
    assert list(earlier_identities(task_identity(context()))) == []
    cleared = task_identity(context(max_tries=4, map_index=1))
    steps = [(earlier.step, earlier.map_index, earlier.run) for earlier in earlier_identities(cleared)]
    assert steps == [("train", 1, "r"), ("train@1", 1, "r"), ("train@2", 1, "r"), ("train@3", 1, "r")]


def test_placement_and_secrets_of_the_operator_reach_the_request() -> None:
    fields: dict[str, Any] = {
        "queue_name": "gpus",
        "priority_class": "high",
        "topology": "preferred:rack",
        "node_selector": {"gpu": "h100"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "dataset_secret": "data",
        "model_secret": "hub",
        "resume": "s3://bucket/run",
        "resume_secret": "store",
        "previous_jobs": "delete",
        "env": {"HF_TOKEN": {"valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}},
    }
    task = trainwright.operators.TrainJobOperator(task_id="train", workspace="pvc://w", **fields)
    request = task.request()
    assert {field: getattr(request, field) for field in fields} == fields


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"env": {"HF_TOKEN": "hf_" + "a1" * 17}}, r"env\.HF_TOKEN"),
        ({"env": {"PGPASSWORD": "hunter2-of-the-test"}}, r"env\.PGPASSWORD"),
        ({"args": ["--api-key", "hunter2-of-the-test"]}, r"args\[0\]"),
        ({"manifest": {"spec": {"trainer": {"env": [{"name": "DB_PASS", "value": "hunter2-of-the-test"}]}}}}, "DB_PASS"),
    ],
)
def test_a_literal_credential_is_refused_before_the_dag_is_serialized(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], field: str
) -> None:
    from trainwright.jobs.request.secret_detection import LiteralSecret

    masked: list[str] = []
    monkeypatch.setattr("airflow.sdk.log.mask_secret", masked.append)
    with DAG("refused", schedule=None), pytest.raises(LiteralSecret, match=field) as raised:
        trainwright.operators.TrainJobOperator(task_id="train", workspace="pvc://w", **fields)
    assert len(masked) == 1
    assert masked[0] not in str(raised.value)
    if "env" in fields:
        with pytest.raises(LiteralSecret, match=field):
            trainwright.operators.EvaluateOperator(
                task_id="evaluate", workspace="pvc://w", checkpoint_uri="s3://a/b", checkpoint_digest="x", **fields
            )


def test_a_template_is_checked_when_it_is_rendered() -> None:
    from trainwright.jobs.request.secret_detection import LiteralSecret

    env = {"HF_TOKEN": "{{ conn.hub.password }}", "DATABASE": "postgres://me:{{conn.db.password}}@db/x", "MAX_TOKENS": "5"}
    task = trainwright.operators.TrainJobOperator(task_id="train", workspace="pvc://w", env=env)
    task.env = {**env, "HF_TOKEN": "hf_" + "a1" * 17}
    with pytest.raises(LiteralSecret, match=r"env\.HF_TOKEN"):
        task.request()


def test_arguments_of_a_decorated_function_travel_by_name() -> None:
    from trainwright.operators.decorator import trainjob_task

    def fit(steps: int, *, rate: float = 0.1, **more: Any) -> int:
        return steps

    with DAG("decorated", schedule=None) as dag:
        trainjob_task(fit, num_nodes=2)(3, rate=0.5, seed=7)
    task = dag.get_task("fit")
    request = task.request()
    assert request.func_args == {"steps": 3, "rate": 0.5, "seed": 7}
    assert (request.func.name, request.num_nodes) == ("fit", 2)


@pytest.mark.parametrize("arguments", ["*steps", "steps, /"])
def test_an_argument_without_a_name_is_refused(arguments: str) -> None:
    from trainwright.operators.decorator import _named

    scope: dict[str, Any] = {}
    exec(f"def fit({arguments}): ...", scope)
    with pytest.raises(TypeError, match="'steps' cannot be passed by name"):
        _named(scope["fit"], [3], {})


def test_texts_that_end_like_template_files_stay_texts() -> None:
    task = trainwright.operators.TrainJobOperator(task_id="train", command=["tool"], args=["--config", "conf.yaml"])
    task.resolve_template_files()
    assert task.args == ["--config", "conf.yaml"]
