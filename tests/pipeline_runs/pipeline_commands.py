"""What tests of the commands for pipelines share."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from typer.testing import Result

Run = Callable[..., Result]
"""Runs a command line in this process."""


def has_ended(pid: str) -> bool:
    """Whether a process has ended, reaped or not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True, check=False).stdout
    return state.strip()[:1] in ("", "Z")
