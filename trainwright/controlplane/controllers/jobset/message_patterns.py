"""Searches the message of a failed Job for a regular expression of a failure policy, in linear time as JobSet does.

Patterns come from anyone who may create a JobSet. Python's `re` takes exponential time for some, and stops the whole process
meanwhile. RE2 is the library that Go's syntax comes from.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import re2

log = logging.getLogger(__name__)
_MAX_STEPS = 2_000_000
"""Bytes of the message times instructions of the pattern: 10 to 20 ms. A message of 300 bytes allows 6,600 instructions."""
_MAX_PROGRAM_BYTES = 1024 * 1024


def is_found(pattern: str, message: str) -> bool:
    """Whether the pattern matches anywhere in the message.

    An invalid pattern matches nothing, since admission does not check patterns, and neither does one that is too large for this
    message. Both are logged.
    """
    expression = _compiled(pattern)
    if expression is None:
        return False
    text = message.encode("utf-8", "replace")
    if expression.programsize * len(text) > _MAX_STEPS:
        log.warning("event=message_pattern_ignored pattern=%.80r reason=%r", pattern, "too large for a message of this length")
        return False
    return expression.search(text) is not None


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_PROGRAM_BYTES
    try:
        return re2.compile(pattern.encode("utf-8", "replace"), options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        shown = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        log.warning("event=message_pattern_invalid pattern=%.80r reason=%.200r", pattern, shown)
        return None
