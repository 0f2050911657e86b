"""How tasks end with an error: without retries if a retry cannot succeed, and with the message as the end of the log.

Airflow logs the traceback below the message, and that of each error in its chain with its message again. Of an error whose message
is the whole story that is noise: what is left are Airflow's own frames.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from trainwright.operators.values.airflow_api import AirflowFailException, AirflowSensorTimeout, AirflowSkipException

P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger(__name__)


class NonRetryableError(AirflowFailException):
    """The task fails immediately, even with retries left. `error` is the original error, `report` its report if it has one."""

    def __init__(self, error: Exception):
        from trainwright.jobs.credentials.credential_patterns import masked
        from trainwright.jobs.request.invalid_settings import message_of

        super().__init__(masked(f"{type(error).__name__}: {message_of(error)}"))
        self.error = error
        self.report: Any = getattr(error, "report", None)


def fail_fast() -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a method that Airflow calls: fail without retries on errors that every retry would repeat (out of memory, a missing
    image, a missing permission), and raise errors that explain themselves without a chain and without our frames.

    A trial that was stopped early has not failed: Airflow shows its task as skipped.
    """

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        @wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            from trainwright.jobs.diagnosis.errors import StoppedEarly

            try:
                return method(*args, **kwargs)
            except Exception as error:
                if isinstance(error, StoppedEarly):  # a trial that was stopped has not failed
                    raise AirflowSkipException(str(error)) from error
                ending = _ending(error)
                if ending is None:  # its traceback is the only explanation
                    raise
                log.debug("event=task_failed", exc_info=True)
                raise ending.with_traceback(None) from None

        return call

    return decorate


def _ending(error: Exception) -> Exception | None:
    """Return the error to raise instead; None for one that only its traceback explains, and for a task that goes on."""
    from trainwright.jobs.diagnosis.exit_codes import is_permanent
    from trainwright.steps.ends.step_end import EXPECTED

    if is_permanent(error):  # every retry would repeat it
        return NonRetryableError(error)
    return error if isinstance(error, (*EXPECTED, AirflowFailException, AirflowSensorTimeout)) else None


@contextmanager
def reject_unusable_exports() -> Iterator[None]:
    """Raise NonRetryableError for a missing or invalid export or URI, missing or incomparable figures, and a missing client."""
    from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
    from trainwright.checkpoints.registries.registration import MissingExtra
    from trainwright.storage.errors import BadUri

    try:
        yield
    except BadUri as error:
        raise NonRetryableError(error) from None
    except CheckpointError as error:  # PromotionConflict and errors of registries are classes of their own
        if isinstance(error, NoCheckpoint | MissingExtra) or type(error) is CheckpointError:
            raise NonRetryableError(error) from None
        raise
