"""Retries that fit trainings: a preset for `default_args`, and a policy that spends no retry on an error that would only repeat."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
else:
    try:  # Airflow 3.3
        from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
    except ImportError:
        RetryDecision = RetryPolicy = object

RETRY_DELAY = timedelta(minutes=1)
MAX_RETRY_DELAY = timedelta(minutes=30)


def retry_args(
    retries: int = 3, *, retry_delay: timedelta = RETRY_DELAY, max_retry_delay: timedelta = MAX_RETRY_DELAY
) -> dict[str, Any]:
    """Return `default_args` for retries with doubling delays: `DAG(..., default_args=retry_args(retries=3))`.

    Only failures that may go away are retried: the operators raise AirflowFailException for the others (wrong input, a missing image
    or permission, out of memory), which ends the task with retries left. A retry adopts the TrainJob of the previous try, or resumes
    from its last checkpoint. Raises ValueError for negative retries and for delays that are not positive or contradict each other.
    """
    if retries < 0:
        raise ValueError(f"retries={retries}: expected a number that is not negative")
    if not timedelta() < retry_delay <= max_retry_delay:
        raise ValueError(f"retry_delay={retry_delay}: expected a positive delay, at most max_retry_delay={max_retry_delay}")
    return {
        "retries": retries,
        "retry_delay": retry_delay,
        "retry_exponential_backoff": True,  # doubles: Airflow 3.2 and later take it for the factor 2
        "max_retry_delay": max_retry_delay,
    }


class PermanentErrorPolicy(RetryPolicy):
    """A `retry_policy` for tasks of your own that use `trainwright.jobs`: fails at once on an error that every retry would repeat.

    The operators need none. Airflow has policies since 3.3; before that, a policy raises RuntimeError when it is made.
    """

    def __init__(self) -> None:
        if RetryPolicy is object:
            raise RuntimeError("PermanentErrorPolicy needs retry policies, which Airflow has since 3.3")

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Fail if a retry cannot succeed; otherwise the task's own retries and delays apply."""
        from trainwright.jobs.diagnosis.exit_codes import is_permanent

        if is_permanent(exception):  # every retry would fail as well
            return RetryDecision.fail(reason=f"{type(exception).__name__}: a retry cannot succeed")
        return RetryDecision.default()

    def serialize(self) -> dict[str, Any]:
        """For Airflow's serialized DAG: the policy has no settings."""
        return {"__type": f"{type(self).__module__}.{type(self).__qualname__}"}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> PermanentErrorPolicy:
        return cls()
