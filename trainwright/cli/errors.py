"""Error output of the command line: plain lines on stderr, and an exit code, see docs/exit-codes.md."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from trainwright.api.errors import ApiError, Invalid, Problem
from trainwright.api.objects import Obj
from trainwright.api.schema.check import ROOT
from trainwright.cluster.connect import NoCluster
from trainwright.cluster.protocol import OnWarning
from trainwright.jobs.diagnosis.errors import TrainJobError
from trainwright.jobs.diagnosis.exit_codes import ExitCode, exit_code_of
from trainwright.text.foreign_texts import one_line
from trainwright.text.text_input import Unreadable

FAILURE, BAD_INPUT = int(ExitCode.other), int(ExitCode.bad_input)


@contextmanager
def bad_input_exits(reword: Callable[[str], str] = str) -> Iterator[None]:
    """Print admission and materialization errors, one line per problem that starts with the field path; exit code 2.

    `reword` returns each line as the command prints it.
    """
    try:
        yield
    except Invalid as error:
        for line in [format_problem(problem) for problem in error.problems] or [error.message]:
            print(one_line(reword(line)), file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from error
    except (ApiError, Unreadable) as error:
        fail(reword(error.message), BAD_INPUT)


def format_problem(problem: Problem) -> str:
    """Return a problem as text: location, message and hint."""
    location = problem.where if problem.where == problem.field else f"{problem.where}: {problem.field}"
    location = problem.where if problem.field in ("", ROOT) else location
    return f"{location}: {problem.message}" + (f" ({problem.hint})" if problem.hint else "")


@contextmanager
def cluster_errors_exit(reword: Callable[[str], str] = str) -> Iterator[None]:
    """Print errors of a cluster or a job in one line and exit with their code; invalid input as `bad_input_exits`."""
    try:
        yield
    except Invalid as error:
        with bad_input_exits(reword):
            raise error
    except (NoCluster, ApiError, TrainJobError) as error:
        fail(reword(str(error)), int(exit_code_of(error)))
    except ValueError as error:
        from trainwright.jobs.request.invalid_settings import message_of  # only here: it imports all settings

        fail(reword(message_of(error)), int(exit_code_of(error)))


class WarningPrinter:
    """Prints warnings on standard error, one line each, and none twice: the server often repeats what was found locally."""

    def __init__(self, reword: Callable[[str], str] = str) -> None:
        self._printed: set[str] = set()
        self._reword = reword

    def print(self, text: str) -> None:
        line = one_line(self._reword(f"warning: {text}"))
        if line not in self._printed:
            self._printed.add(line)
            print(line, file=sys.stderr)

    def of(self, obj: Obj) -> OnWarning:
        """Return a function that prints a warning about an object, with its name."""
        metadata = obj.get("metadata") or {}
        name = metadata.get("name") or metadata.get("generateName") or obj.get("kind")
        return lambda text: self.print(f"{name}: {text}")


def fail(message: str, code: int = FAILURE) -> NoReturn:
    """Print a message in one line and exit."""
    print(one_line(message), file=sys.stderr)
    raise typer.Exit(code)
