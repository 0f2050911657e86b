"""Decodes the log lines in which the launcher reports `results.json`. Pure."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterable
from typing import Any

from trainwright.api.finite_json import finite_json
from trainwright.jobs.logs.numbered_lines import joined_parts, numbered_line
from trainwright.runtimes.plain_values import UNREPORTABLE

_LINE = numbered_line("trainwright-result")
log = logging.getLogger(__name__)


class UnreportableResult(ValueError):
    """The job succeeded, but its function returned a value that cannot be reported. A retry cannot succeed."""


def parse_results(lines: Iterable[str]) -> Any:
    """Return the value encoded in the launcher's lines; None if lines are missing or the value is not JSON.

    Raises UnreportableResult for the reason that a function reports in place of its result.
    Values that not every reader of JSON accepts, such as NaN, are null, with a warning; one without a key is under `value`.
    """
    content = joined_parts(_LINE, lines, lambda text: base64.b64decode(text, validate=True))
    if content is None:
        return None
    try:
        value = json.loads(content)
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
