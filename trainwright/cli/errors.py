"""How the command line says what went wrong: plain lines on stderr, and an exit code, see docs/exit-codes.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from trainwright.api.errors import ApiError, Invalid, Problem
from trainwright.api.schema.check import ROOT
from trainwright.cluster.connect import NoCluster
from trainwright.jobs.diagnosis.errors import TrainJobError
from trainwright.jobs.diagnosis.exit_codes import ExitCode, exit_code_of

FAILURE, BAD_INPUT = int(ExitCode.other), int(ExitCode.bad_input)


@contextmanager
def bad_input_exits() -> Iterator[None]:
    """Errors of admission and materialization: one unwrapped line for each problem, beginning with the field path; exit code 2."""
    try:
        yield
    except Invalid as error:
        for line in [told(problem) for problem in error.problems] or [error.message]:
            print(one_line(line), file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from error
    except ApiError as error:
        fail(error.message, BAD_INPUT)


def told(problem: Problem) -> str:
    """A problem for people: where to look, what is wrong, and what may have been meant."""
    place = problem.where if problem.where == problem.field else f"{problem.where}: {problem.field}"
    place = problem.where if problem.field in ("", ROOT) else place
    return f"{place}: {problem.message}" + (f" ({problem.hint})" if problem.hint else "")


@contextmanager
def cluster_errors_exit() -> Iterator[None]:
    """Errors of a cluster or about a job: bad input as above, everything else one line and its exit code."""
    try:
        yield
    except Invalid as error:
        with bad_input_exits():
            raise error
    except (NoCluster, ApiError, TrainJobError, ValueError) as error:
        fail(str(error), int(exit_code_of(error)))


def fail(message: str, code: int = FAILURE) -> NoReturn:
    """Say it in one line and exit."""
    print(one_line(message), file=sys.stderr)
    raise typer.Exit(code)


def one_line(text: str) -> str:
    return " ".join(text.split())
