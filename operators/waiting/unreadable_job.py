"""Errors of a task that resumes and cannot read its job, such as with credentials that have expired: what its trigger said counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from trainwright.api.errors import ApiError, NotFound
from trainwright.cluster import NoCluster


@contextmanager
def name_unreadable_job(event: Mapping[str, Any]) -> Iterator[None]:
    """Read the job of a trigger's event in the block. Raises its errors, with the job and what the event says in the message.

    NotFound stays as it is: it says something of the job.
    """
    try:
        yield
    except NotFound:
        raise
    except (ApiError, NoCluster) as error:
        said = _said(event)
        text = said if str(error) in said else f"{said}; it cannot be read: {error}"
        error.args = (text,)
        if isinstance(error, ApiError):
            error.message = text
        raise


def _said(event: Mapping[str, Any]) -> str:
    name, outcome, message = event["name"], event["outcome"], event["message"]
    job = f"TrainJob {event['namespace']}/{name}" if event["namespace"] else f"TrainJob {name}"
    if outcome != "error":
        return f"{job} {outcome}: {message}" if message else f"{job} {outcome}"
    return message if message.startswith(job) else f"{job} goes on, but is not watched any more: {message}"
