"""Fixture: the command line in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from trainwright.cli import app

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Run a command; an exception other than an exit fails the test, since people would see a traceback."""

    def invoke(*arguments: str, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(app, arguments, input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
        return result

    return invoke
