"""The preset for retries and the policy, as Airflow takes them."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from support.on_first_use import OnFirstUse

from trainwright import operators
from trainwright.api.errors import Invalid, ServiceUnavailable
from trainwright.jobs.diagnosis.errors import ImagePullFailed

sdk = OnFirstUse("airflow.sdk")
retry_policy = OnFirstUse("airflow.sdk.definitions.retry_policy")
serialized_objects = OnFirstUse("airflow.serialization.serialized_objects")
retry = OnFirstUse("trainwright.operators.retry")


def test_a_dag_takes_the_preset() -> None:
    with sdk.DAG("d", start_date=datetime(2026, 1, 1), default_args=retry.retry_args(retries=4)) as dag:
        task = operators.TrainJobOperator(task_id="train", runtime="r", retry_policy=retry.PermanentErrorPolicy())
    assert (task.retries, task.retry_delay, task.max_retry_delay) == (4, timedelta(minutes=1), timedelta(minutes=30))
    read: Any = serialized_objects.DagSerialization.from_dict(serialized_objects.DagSerialization.to_dict(dag)).task_dict["train"]
    assert (read.retries, read.retry_exponential_backoff, read.has_retry_policy) == (4, 2.0, True)


@pytest.mark.parametrize(
    "given",
    [{"retries": -1}, {"retry_delay": timedelta()}, {"retry_delay": timedelta(hours=1), "max_retry_delay": timedelta(minutes=1)}],
)
def test_contradictory_retry_arguments_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(given))}="):
        retry.retry_args(**given)


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (Invalid("no such field"), "FAIL"),
        (ImagePullFailed("no such image"), "FAIL"),
        (ValueError("x"), "FAIL"),
        (ServiceUnavailable("restarting"), "DEFAULT"),
        (RuntimeError("x"), "DEFAULT"),
    ],
    ids=lambda value: f"RetryAction.{value}" if isinstance(value, str) else None,
)
def test_the_policy_spends_no_retry_on_errors_that_repeat(error: Exception, action: str) -> None:
    policy = retry.PermanentErrorPolicy.deserialize(retry.PermanentErrorPolicy().serialize())
    decision = policy.evaluate(error, 1, 3, SimpleNamespace())
    assert decision.action is retry_policy.RetryAction[action]
    assert bool(decision.reason) is (action == "FAIL")
