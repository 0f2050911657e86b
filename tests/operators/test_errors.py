"""How tasks end: without retries if these cannot succeed, and with the message of an error as the end of their log."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from deferred_tasks import context, operator
from support.on_first_use import OnFirstUse

from trainwright.api.errors import ServiceUnavailable
from trainwright.jobs import TrainJobDeleted, TrainJobFailed
from trainwright.jobs.diagnosis.errors import ImagePullFailed, StoppedEarly
from trainwright.storage.errors import StorageError

sdk = OnFirstUse("airflow.sdk")
errors = OnFirstUse("trainwright.operators.errors")
airflow_api = OnFirstUse("trainwright.operators.values.airflow_api")

pytestmark = pytest.mark.medium
TRAINJOB = {"metadata": {"name": "job", "namespace": "default"}}


@functools.cache
def failing() -> Any:
    class Failing:
        def __init__(self, error: BaseException):
            self.error = error

        @errors.fail_fast()
        def outer(self) -> None:
            self.execute()

        @errors.fail_fast()
        def execute(self) -> None:
            try:
                raise KeyError("an error before")
            except KeyError as before:
                raise self.error from before

    return Failing


def ending(error: Exception) -> Exception:
    with pytest.raises(
        type(error) if not isinstance(error, ValueError | ImagePullFailed) else errors.NonRetryableError
    ) as raised:
        failing()(error).outer()
    return raised.value


EXPLAINED: dict[str, Callable[[], Exception]] = {
    "ServiceUnavailable": lambda: ServiceUnavailable("down"),
    "TrainJobDeleted": lambda: TrainJobDeleted("gone"),
    "TrainJobFailed": lambda: TrainJobFailed("failed", TRAINJOB),
    "ImagePullFailed": lambda: ImagePullFailed("no such image"),
    "StorageError": lambda: StorageError("denied"),
    "ValueError": lambda: ValueError("settings: wrong"),
    "AirflowSensorTimeout": lambda: airflow_api.AirflowSensorTimeout("late"),
    "NonRetryableError": lambda: errors.NonRetryableError(ValueError("x")),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_error_that_explains_itself_is_raised_without_chain_and_frames(name: str) -> None:
    error = EXPLAINED[name]()
    found = ending(error)
    assert str(error) in str(found)
    assert found.__cause__ is None
    assert found.__suppress_context__
    frames = [frame.name for frame in traceback.extract_tb(found.__traceback__)]
    assert frames == ["ending", "call"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"placement": {"tolerations": '[{"key": 1'}},
            "InvalidSettings: placement.tolerations: neither JSON nor YAML: line 1, column 11: not JSON: ",
        ),
        ({"num_nodes": -1, "logging": {"logs": "x"}}, "InvalidSettings: num_nodes: expected at least 1; logging.logs: "),
        ({"code": "x", "command": []}, "InvalidSettings: command: required with code"),
        (
            {"placement": {"volumes": [{"nam": "d"}]}},
            "InvalidSettings: placement.volumes[0].nam: unknown field; did you mean name?",
        ),
    ],
)
def test_invalid_settings_are_named_without_the_words_of_pydantic(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.NonRetryableError) as raised:
        operator(**settings).execute(context())
    assert str(raised.value).startswith(said)
    assert "pydantic" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_credential_is_not_in_the_message_of_a_task() -> None:
    token = "hf_" + "a" * 34
    assert str(ending(ValueError(f"namespace: {token} is not a name"))) == "ValueError: namespace: *** is not a name"


def test_error_that_explains_nothing_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError) as raised:
        failing()(RuntimeError("a fault")).outer()
    assert isinstance(raised.value.__cause__, KeyError)
    assert [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)][-1] == "execute"


def test_stopped_trial_is_skipped_and_its_reason_kept() -> None:
    with pytest.raises(airflow_api.AirflowSkipException, match="hopeless") as raised:
        failing()(StoppedEarly("hopeless", TRAINJOB)).outer()
    assert isinstance(raised.value.__cause__, StoppedEarly)


def test_deferral_is_no_error() -> None:
    with pytest.raises(airflow_api.TaskDeferred):
        failing()(airflow_api.TaskDeferred(trigger=None, method_name="x")).outer()


def test_task_of_airflow_ends_with_the_message_of_a_wrong_setting(connected: Any) -> None:
    task: sdk.BaseOperator = operator(settings={"max_steps": 1})
    with pytest.raises(errors.NonRetryableError, match="did you mean steps") as raised:
        task.execute(context())
    assert raised.value.__cause__ is None
    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert names == ["test_task_of_airflow_ends_with_the_message_of_a_wrong_setting", "wrapper", "call"]
