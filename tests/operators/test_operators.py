"""The provider: described without importing Airflow, loaded lazily, and a task's identity through retries and clears."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from support.on_first_use import OnFirstUse

import trainwright.operators
from trainwright.jobs import Identity
from trainwright.jobs.state.identity import Relation

task_identity = OnFirstUse("trainwright.operators.values.task_identity")
sdk = OnFirstUse("airflow.sdk")


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


BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def context(*, began: datetime = BEGAN, max_tries: int = 2, **changed: Any) -> dict[str, Any]:
    about = {"dag_id": "d", "task_id": "train", "run_id": "r", "map_index": -1, "try_number": 1, "id": "ti-1"} | changed
    return {"ti": SimpleNamespace(**about, max_tries=max_tries), "dag_run": SimpleNamespace(start_date=began)}


def test_two_dags_with_one_run_id_share_neither_identity_nor_folder_nor_exports() -> None:
    one, other = (task_identity.task_identity(context(dag_id=dag, run_id="scheduled__2026-11-24")) for dag in ("a", "b"))
    assert one != other
    assert one.folder != other.folder
    assert one.exports != other.exports


def test_trainings_of_one_dag_run_have_a_folder_each() -> None:
    tasks = [("train", -1), ("train", 0), ("train", 1), ("sft.train", -1), ("dpo.train", -1), ("other", -1), ("other", 0)]
    made = [task_identity.task_identity(context(task_id=task, map_index=index)) for task, index in tasks]
    assert len({one.folder for one in made}) == len({one.exports for one in made}) == len(set(made)) == len(tasks)
    assert len({one.run for one in made}) == 1, "steps find the run by its name"


def test_a_named_run_stands_in_for_the_dag_run() -> None:
    one, other = (task_identity.task_identity(context(run_id=run), "mine") for run in ("a", "b"))
    assert one == other
    assert one.folder == "runs/mine"
    assert one.submitter.adopts_reruns


def noted(submitted: Identity) -> dict[str, Any]:
    return {"metadata": {"annotations": submitted.submitter.annotations()}}


@pytest.mark.parametrize(
    ("later", "relation"),
    [
        ({"try_number": 2, "id": "ti-2"}, Relation.retry),
        ({"max_tries": 3}, Relation.cleared),
        ({"max_tries": 1}, Relation.cleared),
        ({"began": BEGAN + timedelta(hours=1)}, Relation.rerun),
        ({"began": BEGAN + timedelta(hours=1), "max_tries": 3}, Relation.cleared),
    ],
)
def test_the_job_tells_a_retry_from_a_clear_and_from_a_run_that_was_triggered_again(
    later: dict[str, Any], relation: Relation
) -> None:
    job = noted(task_identity.task_identity(context()))
    now = task_identity.task_identity(context(**later))
    assert now == task_identity.task_identity(context()), "its folder and its jobs are found again"
    assert now.submitter.relation_to(job) is relation


def test_retries_that_are_edited_in_the_dag_are_no_clear() -> None:
    """Airflow keeps `max_tries` of a task instance; only the task's own number changes."""
    job = noted(task_identity.task_identity({**context(), "task": SimpleNamespace(retries=2)}))
    assert (
        task_identity.task_identity({**context(), "task": SimpleNamespace(retries=5)}).submitter.relation_to(job)
        is Relation.retry
    )


def test_placement_and_secrets_of_the_operator_reach_the_request() -> None:
    fields: dict[str, Any] = {
        "placement": {
            "queue_name": "gpus",
            "priority_class": "high",
            "topology": "preferred:rack",
            "node_selector": {"gpu": "h100"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
        },
        "secrets": {"dataset_secret": "data", "model_secret": "hub", "resume_secret": "store"},
        "resume": "s3://bucket/run",
        "ending": {"previous_jobs": "delete"},
        "env": {"HF_TOKEN": {"valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}},
    }
    task = trainwright.operators.TrainJobOperator(task_id="train", workspace="pvc://w", **fields)
    assert task.request().given_values() == {"workspace": "pvc://w", **fields}


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
    from trainwright.jobs.credentials.secret_detection import LiteralSecret

    masked: list[str] = []
    monkeypatch.setattr("airflow.sdk.log.mask_secret", masked.append)
    with sdk.DAG("refused", schedule=None), pytest.raises(LiteralSecret, match=field) as raised:
        trainwright.operators.TrainJobOperator(task_id="train", workspace="pvc://w", **fields)
    assert len(masked) == 1
    assert masked[0] not in str(raised.value)
    if "env" in fields:
        with pytest.raises(LiteralSecret, match=field):
            trainwright.operators.EvaluateOperator(
                task_id="evaluate", workspace="pvc://w", checkpoint_uri="s3://a/b", checkpoint_digest="x", **fields
            )


def test_a_template_is_checked_when_it_is_rendered() -> None:
    from trainwright.jobs.credentials.secret_detection import LiteralSecret

    env = {"HF_TOKEN": "{{ conn.hub.password }}", "DATABASE": "postgres://me:{{conn.db.password}}@db/x", "MAX_TOKENS": "5"}
    task = trainwright.operators.TrainJobOperator(task_id="train", workspace="pvc://w", env=env)
    task.env = {**env, "HF_TOKEN": "hf_" + "a1" * 17}
    with pytest.raises(LiteralSecret, match=r"env\.HF_TOKEN"):
        task.request()


def decorated_task(*args: Any, **kwargs: Any) -> Any:
    """A task of a function with annotated parameters, and one without."""
    from trainwright.operators.decorator import trainjob_task

    def fit(steps: int, rate: float = 0.1, flag: bool = True, note=""): ...  # type: ignore[no-untyped-def]

    with sdk.DAG("decorated", schedule=None) as dag:
        trainjob_task(fit)(*args, **kwargs)
    return dag.get_task("fit")


def test_rendered_and_pulled_arguments_are_converted_by_annotations() -> None:
    task = decorated_task("{{ params.steps }}", flag="{{ params.flag }}", note="{{ params.note }}")
    task.op_args, task.op_kwargs = ["4.0"], {"flag": "False", "rate": 1, "note": "abc"}
    assert repr(task.request().func_args) == "{'steps': 4, 'rate': 1.0, 'flag': False, 'note': 'abc'}"
    task.op_kwargs = {"note": "False"}
    with pytest.raises(
        ValueError, match=r"func_args.note: the text that the template rendered to may .* annotate the parameter in fit\(\)"
    ):
        task.request()
    task.op_args, task.op_kwargs = [3], {"note": {1, 2}}
    with pytest.raises(ValueError, match="func_args: note: JSON has no type set; pass numbers"):
        task.request()
    pulled = decorated_task(3)
    pulled.op_args, pulled.op_kwargs = ["5"], {"note": "False"}
    assert pulled.request().func_args == {"steps": 5, "note": "False"}, "text of an XCom is text"


def annotated_task(*, native: bool = False, **arguments: Any) -> Any:
    """A rendered task of a function with annotated dates, durations and numbers."""
    from trainwright.operators.decorator import trainjob_task

    def fit(since: datetime | None = None, days: list[date] = [], rates: list[float] = [], most: timedelta = None, note=""): ...  # type: ignore[no-untyped-def]  # noqa: B006, RUF013

    with sdk.DAG("annotated", schedule=None, render_template_as_native_obj=native) as dag:
        trainjob_task(fit)(**arguments)
    task = dag.get_task("fit")
    start = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    params = {"rate": 1, "rates": [1, 2.5], "version": "1.10", "nothing": None}
    task.render_template_fields({"logical_date": start, "ds": "2026-03-29", "ds_nodash": "20260329", "params": params})
    return task


@pytest.mark.parametrize("native", [True, False])
def test_templates_become_what_the_annotations_say(native: bool) -> None:
    task = annotated_task(
        native=native,
        since="{{ logical_date }}",
        days=["{{ ds }}", "{{ ds_nodash }}", date(2026, 1, 31)],
        rates=["{{ params.rate }}", "2.50"],
        most=timedelta(hours=1),
        note="2026-03-29",
    )
    assert json.dumps(task.request().func_args) == json.dumps(
        {
            "since": "2026-03-29T01:30:00+00:00",
            "days": ["2026-03-29", "2026-03-29", "2026-01-31"],
            "rates": [1.0, 2.5],
            "most": 3600.0,
            "note": "2026-03-29",
        }
    )
    assert annotated_task(native=native, rates="{{ params.rates }}").request().func_args == {"rates": [1.0, 2.5]}
    assert annotated_task(native=native, since="{{ params.nothing }}").request().func_args == {"since": None}
    assert annotated_task(native=native, note="1.10").request().func_args == {"note": "1.10"}, "no template"


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"since": "{{ ds }}"}, "since: expected a date with its time, as .*, got '2026-03-29'"),
        ({"days": ["{{ logical_date }}"]}, r"days\[0\]: expected a date without a time"),
        ({"rates": ["{{ ds }}"]}, r"rates\[0\]: expected a number, got '2026-03-29'"),
        (
            {"note": ["a", {"b": "{{ params.version }}"}]},
            r"func_args.note\[1\]\['b'\]: the text that the template rendered to may",
        ),
    ],
)
def test_rendered_argument_of_another_type_fails_before_a_job_is_submitted(
    arguments: dict[str, Any], words: str, native: bool
) -> None:
    with pytest.raises(ValueError, match=words):
        annotated_task(native=native, **arguments).request()


def test_arguments_of_the_operators_function_are_checked_when_the_dag_is_parsed() -> None:
    def fit(steps: int, note=""): ...  # type: ignore[no-untyped-def]

    for given, words in (
        ({"stepz": 1}, r"func_args: fit\(\) has no argument 'stepz' \(did you mean steps\?\)"),
        (None, "needs the argument 'steps'"),
        ({"steps": "x"}, "steps: expected an integer"),
    ):
        with pytest.raises(ValueError, match=words):
            trainwright.operators.TrainJobOperator(task_id="train", func=fit, func_args=given)
    for templated in ("{{ params.all }}", {"steps": "{{ params.steps }}"}):
        trainwright.operators.TrainJobOperator(task_id="train", func=fit, func_args=templated)
    task = trainwright.operators.TrainJobOperator(task_id="train", func=fit, func_args={"steps": 1, "note": "{{ x }}"})
    task.func_args = {"steps": "1", "note": "4.0"}
    with pytest.raises(ValueError, match=r"note: the text that the template rendered to may"):
        task.request()


def test_durations_are_timedeltas_too() -> None:
    from datetime import timedelta

    task = trainwright.operators.TrainJobOperator(
        task_id="train",
        limits={"run_timeout_seconds": timedelta(hours=2)},
        ending={"waiter_lease_seconds": timedelta(minutes=10)},
        deferral={"min_defer_seconds": timedelta(seconds=20), "log_poll_interval": timedelta(0)},
    )
    request = task.request()
    assert (request.limits.run_timeout_seconds, request.ending.waiter_lease_seconds) == (7200, 600)
    assert (task.min_defer_seconds, task.log_poll_interval) == (20.0, 0.0)
