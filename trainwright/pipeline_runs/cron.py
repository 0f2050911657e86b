"""Cron expressions as servers of Kubeflow Pipelines read them: six fields, of which the first are seconds.

A server takes five fields as well, but then as seconds, minutes, hours, day and month: `0 3 * * *` would start a run every hour. It
checks what each field contains.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainwright.pipeline_runs.errors import BadSchedule

_SECOND = re.compile(r"[0-5]?[0-9]")
_MAX_CHARS = 200


@dataclass(frozen=True)
class CronExpression:
    """Six fields; `seconds_were_added` if five were given."""

    text: str
    seconds_were_added: bool = False

    @classmethod
    def parse(cls, text: str) -> CronExpression:
        """Check the number of fields and the seconds, of which the server would make something else. Raises BadSchedule."""
        if len(text) > _MAX_CHARS or not text.isascii():
            raise BadSchedule(f"cron: expected at most {_MAX_CHARS} ASCII characters")
        words = text.split()
        if text.strip().startswith(("@", "TZ=", "CRON_TZ=")):
            raise BadSchedule(
                f"cron: {text.strip()!r}: only fields are supported, such as '0 0 3 * * *' for every day at 03:00:00"
            )
        if len(words) not in (5, 6):
            raise BadSchedule(
                f"cron: {text!r} has {len(words)} fields; expected six: second minute hour day-of-month month day-of-week"
            )
        seconds_were_added = len(words) == 5
        words = ["0", *words] if seconds_were_added else words
        if not _SECOND.fullmatch(words[0]):
            raise BadSchedule(f"cron: second: {words[0]!r} is not one number from 0 to 59; others start several runs a minute")
        return cls(" ".join(words), seconds_were_added)
