"""Errors that Airflow does not retry, because a retry cannot succeed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trainwright.operators.values.airflow_api import AirflowFailException, AirflowSkipException


class NonRetryableError(AirflowFailException):
    """The task fails immediately, even with retries left. `error` is the original error, `report` its report if it has one."""

    def __init__(self, error: Exception):
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error
        self.report: Any = getattr(error, "report", None)


@contextmanager
def fail_fast() -> Iterator[None]:
    """Fail without retries on errors that every retry would repeat (out of memory, a missing image, a missing permission).

    A trial that was stopped early has not failed: Airflow shows its task as skipped.
    """
    from trainwright.jobs.diagnosis.errors import StoppedEarly
    from trainwright.jobs.diagnosis.exit_codes import is_permanent

    try:
        yield
    except StoppedEarly as error:
        raise AirflowSkipException(str(error)) from error
    except Exception as error:
        if is_permanent(error):
            raise NonRetryableError(error) from error
        raise
