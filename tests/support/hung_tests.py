"""Ends the process of a test that outlives its timeout, and prints what each thread was doing.

A timeout is an exception in the main thread. It does not end a test that catches it and goes on (hypothesis shrinks a failure), waits
again while it is raised (a pool of threads is joined), or is held up in C; such a test would hold up the whole run.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator
from typing import Any

import pytest
from pytest_timeout import get_env_settings

_STDERR: pytest.StashKey[int] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("hung_seconds", "time that a test has after its timeout, until its process is ended", default="120")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STDERR] = os.dup(2)  # not captured yet


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_STDERR])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """With several workers, the test then counts as failed, and another worker runs the others; alone, the run ends."""
    mark = item.get_closest_marker("timeout")
    timeout = float((mark.args[0] if mark is not None else get_env_settings(item.config).timeout) or 0)
    if timeout > 0:
        patience = float(item.config.getini("hung_seconds"))
        faulthandler.dump_traceback_later(timeout + patience, exit=True, file=item.config.stash[_STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
