"""Shell scripts that wait, and end at SIGTERM like a training program with a handler.

Without one, the first process of a container ignores SIGTERM, here as in any cluster, and its pod takes its whole grace to end.
"""

from __future__ import annotations

from pathlib import Path

_ENDS = "trap 'exit 143' TERM"
WAIT = f"{_ENDS}; echo on; sleep 1000 & wait"
"""Prints a line once it has the handler: a signal before that is ignored."""


def wait_until(flag: Path | str) -> str:
    """Waits for a file."""
    return f"{_ENDS}; while [ ! -e {flag} ]; do sleep 0.05; done"
