"""Formats durations as kubectl does: `45s`, `3m20s`, `26h`, `12d`."""

from __future__ import annotations

from datetime import datetime

from trainwright.api.times import parse_time

UNKNOWN = "<unknown>"
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def human_duration(seconds: float) -> str:
    """A duration in at most two units, following HumanDuration of k8s.io/apimachinery."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    for below, large, small in (
        (2 * _MINUTE, 1, 0),
        (10 * _MINUTE, _MINUTE, 1),
        (3 * _HOUR, _MINUTE, 0),
        (8 * _HOUR, _HOUR, _MINUTE),
        (2 * _DAY, _HOUR, 0),
        (8 * _DAY, _DAY, _HOUR),
        (2 * _YEAR, _DAY, 0),
        (8 * _YEAR, _YEAR, _DAY),
    ):
        if whole < below:
            return _in_units(whole, large, small)
    return f"{whole // _YEAR}y"


def age(since: object, now: datetime) -> str:
    """The time since an RFC 3339 timestamp, or `<unknown>` if it cannot be parsed."""
    try:
        return human_duration((now - parse_time(str(since))).total_seconds())
    except ValueError:
        return UNKNOWN


def _in_units(seconds: int, large: int, small: int) -> str:
    letters = {1: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}
    text = f"{seconds // large}{letters[large]}"
    rest = seconds % large // small if small else 0
    return f"{text}{rest}{letters[small]}" if rest else text
