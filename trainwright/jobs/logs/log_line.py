"""One line of a job's log."""

from __future__ import annotations

from typing import NamedTuple


class LogLine(NamedTuple):
    """`source` is `STEP-JOB-RANK`, `stamp` the line's timestamp; both are empty for messages of the client itself."""

    source: str
    text: str
    stamp: str = ""
