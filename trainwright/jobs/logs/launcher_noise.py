"""The last relevant lines of a log: those of the program, without what torchrun prints about a failure.

torchrun ends a failed node with a traceback of its own agent and a summary, neither of which contains the cause.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainwright.jobs.logs.log_excerpt import excerpt, last_error, tracebacks
from trainwright.jobs.logs.log_text import shortened

LOG_LINES = 20
"""Lines of a program's log in a report."""
LAUNCHER_LINES = 180
"""Maximum number of lines that the launcher adds, and that therefore have to be read in addition: a node of eight ranks."""
_NARROW_WIDTH = 300
"""Characters of a line that is handed to another process: Airflow stores the event of a trigger in its database."""
_AGENT = re.compile(r"[EWIF]\d{4} \d\d:\d\d:\d\d\S* .*torch/distributed/(elastic/|run\.py)")
_AGENT_ERROR = re.compile(r"torch\.distributed\.elastic\.\S*\b(ChildFailedError|SignalException)\b")


_ADDRESS_WARNING = re.compile(
    r"(\[rank\d+\]:)?\[W\d{4} [^\]]*socket\.cpp:\d+\] \[c10d\] The "
    r"(IPv6 network addresses of|hostname of the client socket|(client|server) socket cannot be initialized [^(]*\(errno: 97\b)"
)
"""torch tries IPv6 first, and warns on each connection where a node has none."""


def program_lines(lines: Sequence[str]) -> list[str]:
    """Return the lines without those of the launcher; all of them if there are no others."""
    own = [line for line in lines[: _end_of_program(lines)] if not _AGENT.match(line) and not _ADDRESS_WARNING.match(line)]
    return own if any(line.strip() for line in own) else list(lines)


def log_tail(lines: Sequence[str], count: int) -> list[str]:
    """Return the `count` lines of the program that matter, mostly its last ones, or of the launcher if the program printed none."""
    return excerpt(program_lines(lines), count)


def narrow_tail(lines: Sequence[str]) -> list[str]:
    """Return the tail of a report as it is handed to another process."""
    return [shortened(line, _NARROW_WIDTH) for line in log_tail(lines, LOG_LINES)]


def last_word(lines: Sequence[str]) -> str:
    """Return the error with which the program ended, else its last line; empty if it printed none."""
    own = program_lines(lines)
    return "" if any(map(_AGENT.match, own)) else last_error(own)


def _end_of_program(lines: Sequence[str]) -> int:
    """Return where the launcher's last traceback begins, which its summary follows."""
    headers = {traceback.error: traceback.header for traceback in tracebacks(lines)}
    for number, line in enumerate(lines):
        if _AGENT_ERROR.match(line):
            return headers.get(number, number)
    return len(lines)
