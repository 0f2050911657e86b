"""The hours of training that a resumption saves, at the end of the text that says what a training starts from. Pure."""

from __future__ import annotations

import re

_SAVED = re.compile(r"; saves ([0-9]{1,6}\.[0-9]{2}) h of training\Z")


def saved_text(seconds: float) -> str:
    """Return what `started_from` says of the time that was saved; empty if that is hardly any."""
    hours = seconds / 3600
    return f"; saves {hours:.2f} h of training" if hours >= 0.01 else ""


def saved_hours(started_from: str) -> float:
    """Return the hours that the text of `saved_text` says, else 0."""
    match = _SAVED.search(started_from)
    return float(match[1]) if match is not None else 0.0
