"""The last lines of a log that are worth showing: what the program said, not what its launcher says about it afterwards.

torchrun ends a failed node with a page of its own - a traceback through its agent and a summary without the cause.
"""

from __future__ import annotations

import re

LAUNCHER_LINES = 80
"""At most how many lines the launcher adds; so many more have to be read to see past them."""
_LAUNCHER_BEGINS = re.compile(
    r"^[EWIF]\d{4} \d\d:\d\d:\d\d.*torch/distributed/elastic/.*(failed \(exitcode|Sending process|Received)"
)


def last_words(lines: list[str], count: int) -> list[str]:
    """The last `count` lines of the program; those of the launcher when there are no others."""
    for number, line in enumerate(lines):
        if _LAUNCHER_BEGINS.match(line):
            return lines[:number][-count:] or lines[-count:]
    return lines[-count:]
