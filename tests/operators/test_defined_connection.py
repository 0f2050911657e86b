"""A task whose connection or namespace does not exist fails at once, and its error says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deferred_tasks import context
from support.cluster_under_test import embedded
from support.on_first_use import OnFirstUse

from trainwright import operators
from trainwright.cluster import connect
from trainwright.submission.jobs_client import JobsClient

sdk = OnFirstUse("airflow.sdk")
errors = OnFirstUse("trainwright.operators.errors")
hook = OnFirstUse("trainwright.operators.hook")
airflow_api = OnFirstUse("trainwright.operators.values.airflow_api")
defined_connection = OnFirstUse("trainwright.operators.values.connections")

pytestmark = pytest.mark.medium
CHECKPOINT = {"checkpoint_uri": "s3://b/e/r/checkpoint-1", "checkpoint_digest": "sha256:x"}
EXPORT = {**CHECKPOINT, "export_uri": "s3://b/e", "evaluation": {}}


@pytest.fixture
def _no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    def get_connection(_cls: Any, conn_id: str) -> Any:
        raise airflow_api.AirflowNotFoundException(f"The conn_id `{conn_id}` isn't defined")

    monkeypatch.setattr(sdk.BaseHook, "get_connection", classmethod(get_connection))


@pytest.mark.usefixtures("_no_connections")
@pytest.mark.parametrize(
    "task",
    [
        ("TrainJobOperator", {"workspace": "pvc://w", "conn_id": "nobody"}),
        ("TrainJobOperator", {"workspace": "pvc://w", "conn_id": "nobody", "deferrable": True}),
        ("TrainJobOperator", {"workspace": "pvc://w", "store_conn_id": "nobody"}),
        ("TrainJobSensor", {"trainjob": "job", "conn_id": "nobody"}),
        ("StartRunOperator", {"workspace": "pvc://w", "conn_id": "nobody"}),
        ("ExportCheckpointOperator", {"export_uri": "s3://b/e", "workspace": "pvc://w", "hub_conn_id": "nobody"}),
        ("PromoteModelOperator", dict(**EXPORT, store_conn_id="nobody")),
        ("RegisterModelOperator", dict(**CHECKPOINT, registry="hf://org/m", run={"hub_conn_id": "nobody"})),
    ],
    ids=lambda task: task[0],
)
def test_undefined_connection_fails_without_retries_and_is_named(task: tuple[str, dict[str, Any]]) -> None:
    name, arguments = task
    with pytest.raises(airflow_api.AirflowFailException, match="the connection 'nobody' is not defined: create it") as raised:
        getattr(operators, name)(task_id="t", **arguments).execute(context())
    assert isinstance(raised.value, defined_connection.ConnectionNotDefined)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("deferrable", [True, False])
def test_missing_namespace_fails_without_retries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deferrable: bool) -> None:
    with embedded(tmp_path, node=False) as kubeconfig:
        monkeypatch.setattr(hook.TrainwrightHook, "get_conn", lambda _hook: JobsClient.of(connect(kubeconfig)))
        common = {"task_id": "t", "namespace": "nowhere"}
        tasks = [
            operators.TrainJobOperator(**common, runtime="torch-distributed", command=["a"], deferrable=deferrable),
            operators.TrainJobOperator(**common, workspace="pvc://w?size=1Gi", deferrable=deferrable),
            operators.StartRunOperator(**common, workspace="pvc://w?size=1Gi"),
        ]
        for task in tasks:
            with pytest.raises(errors.NonRetryableError) as raised:
                task.execute(context())
            assert str(raised.value) == (
                'NamespaceNotFound: namespaces "nowhere" not found: create it (`kubectl create namespace nowhere`), or correct the '
                "name that the step, its connection or -n gives"
            )
