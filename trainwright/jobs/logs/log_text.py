"""The text of a log line as people read it: the last state of a progress bar, and not wider than a report. Pure."""

from __future__ import annotations

LINE_WIDTH = 500
"""Characters of a line in a report. The begin of an error says what it is, its end often where."""
_MARK = " ... "


def final_state(text: str) -> str:
    """Return the last state of a line that was redrawn with carriage returns, as by a progress bar."""
    return next((state for state in reversed(text.split("\r")) if state.strip()), "")


def shortened(text: str, width: int = LINE_WIDTH) -> str:
    """Return a line of at most `width` characters, of a longer one its begin and its end."""
    if len(text) <= width:
        return text
    tail = width // 4
    return text[: width - tail - len(_MARK)] + _MARK + text[-tail:]
