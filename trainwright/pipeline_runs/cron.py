"""Cron expressions as servers of Kubeflow Pipelines read them: six fields, of which the first are seconds. Pure.

A server takes five fields as well, but then as seconds, minutes, hours, day and month: `0 3 * * *` would start a run every hour.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainwright.pipeline_runs.errors import BadSchedule

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NUMBER = re.compile(r"[0-9]{1,4}")
_MAX_CHARS = 200


@dataclass(frozen=True)
class _Field:
    name: str
    least: int
    most: int
    words: tuple[str, ...] = ()


_FIELDS = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 6, _WEEKDAYS),
)


@dataclass(frozen=True)
class CronExpression:
    """Six fields; `seconds_were_added` if five were given."""

    text: str
    seconds_were_added: bool = False

    @classmethod
    def parse(cls, text: str) -> CronExpression:
        """Check an expression. Raises BadSchedule naming the field, the value and what is allowed."""
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
        values = [_values(field, word) for field, word in zip(_FIELDS, words, strict=True)]
        if len(values[0]) > 1:
            raise BadSchedule(f"cron: second: {words[0]!r} starts several runs a minute; use one number, such as 0")
        _check_days(words, values)
        return cls(" ".join(words), seconds_were_added)


def _values(field: _Field, word: str) -> set[int]:
    """Return the numbers that a field matches."""
    found: set[int] = set()
    for part in word.split(","):
        span, slash, step_text = part.partition("/")
        if slash and not (_NUMBER.fullmatch(step_text) and int(step_text)):
            raise _bad(field, word, f"{step_text!r} is not a step, a number from 1")
        step = int(step_text) if slash else 1
        if span in ("*", "?"):
            first, last = field.least, field.most
        else:
            start, dash, end = span.partition("-")
            first = _number(field, word, start)
            last = _number(field, word, end) if dash else field.most if slash else first
        if first > last:
            raise _bad(field, word, f"{span!r} ends before it begins")
        found.update(range(first, last + 1, step))
    return found


def _number(field: _Field, word: str, text: str) -> int:
    if text.lower() in field.words:
        return field.words.index(text.lower()) + field.least
    number = int(text) if _NUMBER.fullmatch(text) else -1
    if not field.least <= number <= field.most:
        names = f" or {field.words[0].upper()}-{field.words[-1].upper()}" if field.words else ""
        raise _bad(field, word, f"{text!r} is not in {field.least}-{field.most}{names}")
    return number


def _check_days(words: list[str], values: list[set[int]]) -> None:
    """Refuse what never happens, such as 30 February. With a day of the week as well, either of the two days suffices."""
    any_weekday = words[5].startswith(("*", "?"))
    if any_weekday and min(values[3]) > max(_LONGEST_MONTH[month - 1] for month in values[4]):
        raise BadSchedule(f"cron: no month of {words[4]!r} has the day {words[3]!r}: the schedule would never start a run")


def _bad(field: _Field, word: str, problem: str) -> BadSchedule:
    return BadSchedule(f"cron: {field.name}: {problem}" + (f" (in {word!r})" if problem.split("'")[1:2] != [word] else ""))
