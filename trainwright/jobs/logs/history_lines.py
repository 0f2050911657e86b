"""Decodes the log lines in which a training prints at its end all that it has logged, each value with its step. Pure.

Reports of progress are sampled, and a short training is over before the second one: these lines have what the reports have missed.
`trainwright.runtimes.report_progress` writes them.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from trainwright.jobs.logs.numbered_lines import joined_parts, numbered_line

_LINE = numbered_line("trainwright-history")
_MAX_BYTES = 16 * 1024 * 1024
"""Of the decoded text; a training writes less than a tenth of it."""
log = logging.getLogger(__name__)


def parse_history(lines: Iterable[str]) -> tuple[Mapping[str, float], ...]:
    """Return the entries, each with its `step`; none if there are no such lines, or some are missing."""
    if (packed := joined_parts(_LINE, lines)) is None:
        return ()
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(packed), _MAX_BYTES)
        entries = json.loads(content)
    except (binascii.Error, zlib.error, ValueError, RecursionError) as error:
        log.warning("event=history_invalid error=%s", error)
        return ()
    return tuple(entry for entry in entries if _is_entry(entry)) if isinstance(entries, list) else ()


def is_history_line(text: str) -> bool:
    """Whether a log line is a part of a history, which is not shown to users."""
    return _LINE.search(text) is not None


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and "step" in entry and all(isinstance(value, int | float) for value in entry.values())
