"""Tasks that failed on this machine, read from the lines of kfp's local runner."""

from __future__ import annotations

import pytest

from trainwright.pipeline_runs.local_failures import LocalFailures, cause_in

BEGIN, END = (
    "15:08:53.675 - INFO - Executing task \x1b[96m'{}'\x1b[0m",
    "15:08:53.735 - {} - Task \x1b[96m'{}'\x1b[0m finished with status \x1b[91m{}\x1b[0m",
)
INPUT = ["    [KFP Executor 2026-11-26 15:08:53,724 INFO]: Got executor_input:", "    {", '        "inputs": {}', "    }"]
TRACEBACK = ["    Traceback (most recent call last):", '      File "x.py", line 9, in one', "        raise ValueError('no')"]


def read(*lines: str) -> LocalFailures:
    failures = LocalFailures()
    for line in lines:
        failures.read(line)
    return failures


def test_a_failed_task_has_its_error_and_the_lines_of_its_program() -> None:
    done = [BEGIN.format("data"), "    done", END.format("INFO", "data", "SUCCESS")]
    failed = [BEGIN.format("one"), *INPUT, "    hello", *TRACEBACK, "    ValueError: no", "    such thing", "    ", ""]
    [failure] = read(*done, *failed, END.format("ERROR", "one", "FAILURE")).found
    assert (failure.task.name, failure.task.message) == ("one", "ValueError: no such thing")
    assert failure.log == ("hello", *(line[4:] for line in TRACEBACK), "ValueError: no", "such thing")


def test_tasks_that_ran_side_by_side_are_blamed_for_no_error_of_another() -> None:
    lines = [BEGIN.format("one"), "    one", BEGIN.format("two"), *TRACEBACK, "    ValueError: of which?"]
    ends = [END.format("ERROR", "two", "FAILURE"), END.format("ERROR", "one", "FAILURE")]
    found = read(*lines, *ends).found
    assert [(failure.task.name, failure.task.message) for failure in found] == [("two", ""), ("one", "")]


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["epoch 1", "TrainJobFailed: out of memory", ""], "TrainJobFailed: out of memory"),
        (["Traceback (most recent call last):", "  cut off"], "cut off"),
        ([" ", ""], ""),
        ([], ""),
    ],
)
def test_the_cause_without_a_whole_traceback_is_the_last_line(lines: list[str], cause: str) -> None:
    assert cause_in(lines) == cause
