"""RFC 3339 times as Kubernetes writes them: UTC, whole seconds, `Z`."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_MOMENT = re.compile(r"^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})\Z", re.ASCII)


def rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")[:-6] + "Z"


def now() -> str:
    """The current time. Only for callers with effects: pure functions take the time as an argument."""
    return rfc3339(datetime.now(UTC))


def parse_time(text: str) -> datetime:
    """Parse an RFC 3339 time, with fractions and offsets. Raises ValueError."""
    moment = datetime.fromisoformat(text.upper())
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def seconds_between(earlier: str, later: datetime) -> float:
    return (later - parse_time(earlier)).total_seconds()


def is_moment(text: str) -> bool:
    """Whether a text is an RFC 3339 date and time of an existing day."""
    if not _MOMENT.match(text):
        return False
    try:
        parse_time(text)
    except ValueError:
        return False
    return True
