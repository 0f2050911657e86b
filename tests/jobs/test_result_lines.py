"""Results as the launcher reports them in lines of the log."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from trainwright.jobs.diagnosis.exit_codes import ExitCode, exit_code_of, is_permanent
from trainwright.jobs.logs.training_log import UnreportableResult, parse_results
from trainwright.runtimes.plain_values import UNREPORTABLE


def result_line(value: Any) -> str:
    return f"trainwright-result 1/1 {base64.b64encode(json.dumps(value).encode()).decode()}"


def test_values_that_are_not_finite_are_null_with_a_warning_naming_the_key(caplog: pytest.LogCaptureFixture) -> None:
    found = parse_results([result_line({"loss": float("nan"), "inf": float("-inf"), "text": "\ud800", "n": 1})])
    assert found == {"loss": None, "inf": None, "text": "\ufffd", "n": 1}
    assert [record.getMessage() for record in caplog.records] == [
        "event=result_changed loss: nan is written as null",
        "event=result_changed inf: -inf is written as null",
        "event=result_changed text: half of a surrogate pair is replaced",
    ]


def test_a_single_value_that_is_not_finite_differs_from_no_result() -> None:
    assert parse_results([result_line(float("nan"))]) == {"value": None}
    assert parse_results([]) is None
    assert parse_results([result_line(None)]) is None


def test_an_unreportable_result_is_an_error_with_the_reason() -> None:
    with pytest.raises(UnreportableResult, match="the training succeeded, but fit: the value of a is of type set") as caught:
        parse_results([result_line({UNREPORTABLE: "fit: the value of a is of type set"})])
    assert exit_code_of(caught.value) is ExitCode.failed
    assert is_permanent(caught.value), "a retry would find the same result"
