"""One line of a job's log, as readers hand it on."""

from __future__ import annotations

from typing import NamedTuple


class LogLine(NamedTuple):
    """A line, whose it is (`STEP-JOB-RANK`), and its time, which is empty for words of ours."""

    source: str
    text: str
    stamp: str = ""
