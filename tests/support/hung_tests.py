"""Ends the process of a test that outlives its timeout, and prints what each thread was doing.

A timeout is an exception in the main thread. It does not end a test that catches it and goes on (hypothesis shrinks a failure), waits
again while it is raised (a pool of threads is joined), or is held up in C; such a test would hold up the whole run.
"""

from __future__ import annotations

import faulthandler
import os
import time

import pytest
from pytest_timeout import get_env_settings

_STDERR: pytest.StashKey[int] = pytest.StashKey()
_ENDS_AT: pytest.StashKey[float] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("hung_seconds", "time that a test has after its timeout, until its process is ended", default="90")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STDERR] = os.dup(2)  # not captured yet
    config.stash[_ENDS_AT] = 0.0


def pytest_unconfigure(config: pytest.Config) -> None:
    faulthandler.cancel_dump_traceback_later()
    os.close(config.stash[_STDERR])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """With several workers, the test then counts as failed, and another worker runs the others; alone, the run ends.

    The timer is started again only if it would fire too early or too late for this test: starting it takes milliseconds.
    """
    mark, config = item.get_closest_marker("timeout"), item.config
    timeout = float((mark.args[0] if mark is not None else get_env_settings(config).timeout) or 0)
    patience = float(config.getini("hung_seconds"))
    earliest = time.monotonic() + timeout + patience
    if timeout <= 0:
        faulthandler.cancel_dump_traceback_later()
        config.stash[_ENDS_AT] = 0.0
    elif not earliest <= config.stash[_ENDS_AT] <= earliest + patience / 2:
        config.stash[_ENDS_AT] = earliest + patience / 2
        faulthandler.dump_traceback_later(timeout + 1.5 * patience, exit=True, file=config.stash[_STDERR])
