"""The last relevant lines of a log: those of the program, without what torchrun prints after a failure.

torchrun ends a failed node with a traceback of its own agent and a summary, neither of which contains the cause.
"""

from __future__ import annotations

import re

LAUNCHER_LINES = 80
"""Maximum number of lines that the launcher adds, and that therefore have to be read in addition."""
_LAUNCHER_BEGINS = re.compile(
    r"^[EWIF]\d{4} \d\d:\d\d:\d\d.*torch/distributed/elastic/.*(failed \(exitcode|Sending process|Received)"
)


def log_tail(lines: list[str], count: int) -> list[str]:
    """Return the last `count` lines of the program, or of the launcher if the program printed none."""
    for number, line in enumerate(lines):
        if _LAUNCHER_BEGINS.match(line):
            return lines[:number][-count:] or lines[-count:]
    return lines[-count:]
