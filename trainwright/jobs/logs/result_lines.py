"""Decodes the log lines in which the launcher reports `results.json`. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
from collections.abc import Iterable
from typing import Any

from trainwright.api.finite_json import finite_json
from trainwright.runtimes.plain_values import UNREPORTABLE

_LINE = re.compile(r"trainwright-result (\d{1,4})/(\d{1,4}) ([A-Za-z0-9+/=]*)")
log = logging.getLogger(__name__)


class UnreportableResult(ValueError):
    """The job succeeded, but its function returned a value that cannot be reported. A retry cannot succeed."""


def parse_results(lines: Iterable[str]) -> Any:
    """Return the value encoded in the launcher's lines; None if lines are missing or the value is not JSON.

    Raises UnreportableResult for the reason that a function reports in place of its result.
    Values that not every reader of JSON accepts, such as NaN, are null, with a warning; one without a key is under `value`.
    """
    chunks: dict[int, bytes] = {}
    count = 0
    for text in lines:
        if (match := _LINE.search(text)) is None:
            continue
        number, total = int(match[1]), int(match[2])
        if number == 1 or total != count:
            chunks, count = {}, total
        try:
            chunks[number] = base64.b64decode(match[3], validate=True)
        except binascii.Error:  # not a line of the launcher
            chunks, count = {}, 0
    if not count or sorted(chunks) != list(range(1, count + 1)):
        return None
    try:
        value = json.loads(b"".join(chunks[number] for number in sorted(chunks)))
    except (ValueError, RecursionError):
        log.warning("event=results_invalid error=results.json is not JSON")
        return None
    if isinstance(value, dict) and set(value) == {UNREPORTABLE}:
        raise UnreportableResult(f"the training succeeded, but {value[UNREPORTABLE]}")
    found = finite_json(value)
    for change in found.changed:
        log.warning("event=result_changed %s", change)
    return {"value": None} if found.value is None and value is not None else found.value


def is_result_line(text: str) -> bool:
    """Whether a log line is an encoded result, which is not shown to users."""
    return _LINE.search(text) is not None
