"""Turns pydantic's errors into problems with the names of settings, without its own words around them."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from trainwright.api.errors import Problem
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.validation_words import words_of


def problems_of(error: ValidationError) -> list[Problem]:
    """Return a problem for each error of a request, or of another model."""
    return [_problem(one["loc"], words_of(one)) for one in error.errors()]


def message_of(error: Exception) -> str:
    """Return the message of an error; of pydantic's the problems alone, without its heading and its links."""
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(str(problem) if problem.field else problem.message for problem in problems_of(error))


def _problem(loc: Sequence[str | int], message: str) -> Problem:
    """Convert an error; one about several settings starts with the name of one of them."""
    field, colon, rest = message.partition(": ")
    if not loc and colon and field in TrainRequest.model_fields:
        return Problem(field, rest)
    path = ".".join(map(str, loc))
    return Problem(path, message.removeprefix(f"{path}: "))
