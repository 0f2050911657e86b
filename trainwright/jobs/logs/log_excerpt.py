"""Chooses the lines of a log that a report shows: the last ones, and of the last traceback at least its header and its error. Pure.

A traceback may be longer than the report, be followed by a program's summary, or be one of several that were chained.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_HEADER = re.compile(r"(?P<lead>(?:\[[^\]]{1,40}\]:? ?)?[ |+]*)(?:\S.*)?Traceback \(most recent call last\):\s*")
_JOINERS = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
_FRAME_LINES = 2


@dataclass(frozen=True)
class Traceback:
    """A traceback from its header to the line with its exception, by line numbers; the last line so far if it was cut off."""

    header: int
    error: int


def excerpt(lines: Sequence[str], count: int) -> list[str]:
    """Return at most `count` lines, the important ones of these, with marks where lines between them are left out."""
    shown = list(lines)
    ranked = list(dict.fromkeys(_by_importance(lines))) if len(lines) > count else []
    for size in range(count, 0, -1):
        if len(shown) <= count:
            break
        shown = list(_with_marks(lines, sorted(ranked[:size])))
    return shown


def last_error(lines: Sequence[str]) -> str:
    """Return the error of the last traceback, else the last line that is not empty."""
    if found := tracebacks(lines):
        return lines[found[-1].error].strip()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def tracebacks(lines: Sequence[str]) -> list[Traceback]:
    """Return the tracebacks in these lines, in order."""
    found = ((number, match["lead"]) for number, line in enumerate(lines) if (match := _HEADER.fullmatch(line)))
    return [Traceback(number, _error_of(lines, number, lead.replace("+", "|"))) for number, lead in found]


def _error_of(lines: Sequence[str], header: int, lead: str) -> int:
    """Return the number of the first line after the header that is not indented more. Lines of other ranks between are skipped."""
    for number in range(header + 1, len(lines)):
        line = lines[number]
        if lead.strip() and not line.startswith(lead.rstrip()):
            continue
        body = line[len(lead) :] if line.startswith(lead) else line
        if body.strip() and not body.startswith((" ", "\t")):
            return number
    return len(lines) - 1


def _by_importance(lines: Sequence[str]) -> Iterator[int]:
    """Yield line numbers, the most important first; some more than once."""
    last = len(lines) - 1
    yield last
    chain = _last_chain(lines)
    for traceback in reversed(chain):
        yield from (traceback.error, traceback.header)
        yield from range(traceback.error - 1, max(traceback.header, traceback.error - 1 - _FRAME_LINES), -1)
    if chain:  # an error may have several lines
        yield from range(chain[-1].error + 1, min(chain[-1].error + 1 + _FRAME_LINES, last))
    for before, after in itertools.pairwise(chain):
        yield from (number for number in range(before.error + 1, after.header) if lines[number].strip())
    yield from range(last - 1, -1, -1)


def _last_chain(lines: Sequence[str]) -> list[Traceback]:
    """Return the last traceback, and those before it that it names as its causes."""
    found = tracebacks(lines)
    chain = found[-1:]
    for before in reversed(found[:-1]):
        between = lines[before.error + 1 : chain[0].header]
        if not any(joiner in line for line in between for joiner in _JOINERS):
            break
        chain.insert(0, before)
    return chain


def _with_marks(lines: Sequence[str], chosen: Sequence[int]) -> Iterator[str]:
    expected = chosen[0]
    for number in chosen:
        left_out = number - expected
        if left_out == 1:
            yield lines[expected]
        elif left_out:
            yield f"... {left_out} lines not shown ..."
        yield lines[number]
        expected = number + 1
