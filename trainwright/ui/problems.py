"""Errors of endpoints as responses: a status code, a reason and the message of the typed error."""

from __future__ import annotations

from typing import NamedTuple

from trainwright.api.errors import ApiError
from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint, PromotionConflict
from trainwright.cluster.connect import NoCluster
from trainwright.initializers import InitializerError
from trainwright.jobs.diagnosis.errors import TrainJobError
from trainwright.runtimes import RuntimeNotFound
from trainwright.storage.errors import StorageError
from trainwright.text.foreign_texts import one_line
from trainwright.workspace.layout import WorkspaceError

_MAX_MESSAGE = 4000


class Problem(NamedTuple):
    """What a client gets."""

    code: int
    reason: str
    message: str


EXPECTED = (
    ApiError,
    CheckpointError,
    InitializerError,
    NoCluster,
    RuntimeNotFound,
    StorageError,
    TrainJobError,
    ValueError,
    WorkspaceError,
)
"""Errors with a message for users; every other one is a defect, which is logged."""


def problem_of(error: BaseException) -> Problem:
    """Return the response to an error among EXPECTED."""
    message = str(getattr(error, "message", "") or error)[:_MAX_MESSAGE]
    if isinstance(error, ApiError):
        return Problem(error.code, type(error).__name__, message)
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return Problem(code, type(error).__name__, message)
    return Problem(502, type(error).__name__, one_line(message))


_CODES: dict[type[BaseException], int] = {
    NoCheckpoint: 404,
    RuntimeNotFound: 404,
    PromotionConflict: 409,
    TrainJobError: 409,
    ValueError: 400,
    WorkspaceError: 400,
}
