"""How Airflow is told that another try is in vain: an error that its retries do not follow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

try:
    from airflow.sdk.exceptions import AirflowFailException
except ImportError:  # before 3.2
    from airflow.exceptions import AirflowFailException


class InVain(AirflowFailException):
    """The task fails whatever retries it has left. `error` is what was raised, `report` its report where it has one."""

    def __init__(self, error: Exception):
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error
        self.report: Any = getattr(error, "report", None)


@contextmanager
def retried_unless_in_vain() -> Iterator[None]:
    """Errors that will come again in every try (too little memory, an image or a right that is missing) fail for good."""
    from trainwright.jobs.outcomes import is_in_vain

    try:
        yield
    except Exception as error:
        if is_in_vain(error):
            raise InVain(error) from error
        raise
