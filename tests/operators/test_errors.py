"""How tasks end: without retries if these cannot succeed, and with the message of an error as the end of their log."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from airflow.sdk import BaseOperator
from test_trigger import context, operator

from trainwright.api.errors import ServiceUnavailable
from trainwright.jobs import TrainJobDeleted, TrainJobFailed
from trainwright.jobs.diagnosis.errors import ImagePullFailed, StoppedEarly
from trainwright.operators.errors import NonRetryableError, fail_fast
from trainwright.operators.values.airflow_api import AirflowSensorTimeout, AirflowSkipException, TaskDeferred
from trainwright.storage.errors import StorageError

pytestmark = pytest.mark.medium
TRAINJOB = {"metadata": {"name": "job", "namespace": "default"}}


class Failing:
    def __init__(self, error: BaseException):
        self.error = error

    @fail_fast()
    def outer(self) -> None:
        self.execute()

    @fail_fast()
    def execute(self) -> None:
        try:
            raise KeyError("an error before")
        except KeyError as before:
            raise self.error from before


def ending(error: Exception) -> Exception:
    with pytest.raises(type(error) if not isinstance(error, ValueError | ImagePullFailed) else NonRetryableError) as raised:
        Failing(error).outer()
    return raised.value


@pytest.mark.parametrize(
    "error",
    [
        ServiceUnavailable("down"),
        TrainJobDeleted("gone"),
        TrainJobFailed("failed", TRAINJOB),
        ImagePullFailed("no such image"),
        StorageError("denied"),
        ValueError("settings: wrong"),
        AirflowSensorTimeout("late"),
        NonRetryableError(ValueError("x")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_that_explains_itself_is_raised_without_chain_and_frames(error: Exception) -> None:
    found = ending(error)
    assert str(error) in str(found)
    assert found.__cause__ is None
    assert found.__suppress_context__
    frames = [frame.name for frame in traceback.extract_tb(found.__traceback__)]
    assert frames == ["ending", "call"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tolerations": '[{"key": 1'}, "ValidationError: tolerations: neither JSON nor YAML: line 1, column 11: not JSON: "),
        ({"num_nodes": -1, "logs": "x"}, "ValidationError: num_nodes: expected at least 1; logs: "),
        ({"code": "x", "command": []}, "ValidationError: command: required with code"),
        ({"volumes": [{"nam": "d"}]}, "ValidationError: volumes[0].nam: unknown field; did you mean name?"),
    ],
)
def test_invalid_settings_are_named_without_the_words_of_pydantic(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(NonRetryableError) as raised:
        operator(**settings).execute(context())
    assert str(raised.value).startswith(said)
    assert "pydantic" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_error_that_explains_nothing_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError) as raised:
        Failing(RuntimeError("a fault")).outer()
    assert isinstance(raised.value.__cause__, KeyError)
    assert [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)][-1] == "execute"


def test_stopped_trial_is_skipped_and_its_reason_kept() -> None:
    with pytest.raises(AirflowSkipException, match="hopeless") as raised:
        Failing(StoppedEarly("hopeless", TRAINJOB)).outer()
    assert isinstance(raised.value.__cause__, StoppedEarly)


def test_deferral_is_no_error() -> None:
    with pytest.raises(TaskDeferred):
        Failing(TaskDeferred(trigger=None, method_name="x")).outer()


def test_task_of_airflow_ends_with_the_message_of_a_wrong_setting(connected: Any) -> None:
    task: BaseOperator = operator(settings={"max_steps": 1})
    with pytest.raises(NonRetryableError, match="did you mean steps") as raised:
        task.execute(context())
    assert raised.value.__cause__ is None
    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert names == ["test_task_of_airflow_ends_with_the_message_of_a_wrong_setting", "wrapper", "call"]
