"""How tasks end: without retries if these cannot succeed, and with the message of an error as the end of their log."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from support.on_first_use import OnFirstUse

from trainwright.api.errors import ServiceUnavailable
from trainwright.jobs import TrainJobDeleted, TrainJobFailed
from trainwright.jobs.diagnosis.errors import ImagePullFailed
from trainwright.storage.errors import StorageError

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


def test_credential_is_not_in_the_message_of_a_task() -> None:
    token = "hf_" + "a" * 34
    assert str(ending(ValueError(f"namespace: {token} is not a name"))) == "ValueError: namespace: *** is not a name"
