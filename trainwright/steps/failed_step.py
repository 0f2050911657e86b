"""The error of a step that ran in a pod, as the client that waits for it raises it."""

from __future__ import annotations

from typing import Any

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.registries.registration import MissingExtra
from trainwright.initializers.errors import InitializerError
from trainwright.jobs.diagnosis.errors import TrainJobError
from trainwright.jobs.diagnosis.exit_codes import is_permanent
from trainwright.jobs.request.invalid_settings import message_of
from trainwright.steps.step_end import EXPECTED
from trainwright.storage.errors import BadUri, NotPermitted


class RemoteStepFailed(TrainJobError):
    """The step failed in its pod; the message is that of the error there."""


class RemoteStepInvalid(RemoteStepFailed, ValueError):
    """The step failed for a reason that every retry would meet."""


def description_of(error: Exception) -> dict[str, Any] | None:
    """Return an expected error as an object for the log; None for any other, whose traceback tells more."""
    if not isinstance(error, EXPECTED):
        return None
    return {
        "kind": type(error).__name__,
        "message": message_of(error),
        "is_permanent": is_permanent(error) or _is_of_input(error),
    }


def error_of(description: dict[str, Any], where: str) -> RemoteStepFailed:
    """Return the error that `description_of` has described."""
    kind = RemoteStepInvalid if description.get("is_permanent") else RemoteStepFailed
    return kind(f"{description.get('message') or 'the step failed'} ({where})")


def _is_of_input(error: Exception) -> bool:
    return isinstance(error, InitializerError | BadUri | MissingExtra | NotPermitted) or type(error) is CheckpointError
