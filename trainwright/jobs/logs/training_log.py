"""What a program that has ended says about itself in the log of its first node: its result, all that it has logged, and whether it
has diverged.

The launcher prints `results.json`, and `trainwright.runtimes.report_progress` the history of the training, in numbered lines of
base64. Reports of progress are sampled, and a short training is over before the second one: the history has what the reports have
missed.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.api.errors import ApiError
from trainwright.api.finite_json import finite_json
from trainwright.api.objects import Obj, name_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.logs.log_metrics import parse_progress
from trainwright.jobs.logs.log_options import LogSelector
from trainwright.jobs.logs.read_logs import read_logs
from trainwright.jobs.state.progress import Divergence, DivergenceDetector, divergence_in
from trainwright.runtimes.plain_values import UNREPORTABLE

_TAIL_LINES = 2000
"""The history has a few hundred lines at most; what follows it are the results of a function, and what programs print at their end."""
log = logging.getLogger(__name__)
_RESULT_TAIL_LINES = 400
"""Results are the last lines of the launcher: 256 KiB in lines of 2 KiB, plus room for interleaved lines of other processes."""
_MAX_HISTORY_BYTES = 16 * 1024 * 1024
"""Of the decoded text; a training writes less than a tenth of it."""


def results_of(cluster: Cluster, trainjob: Obj) -> Any:
    """Return the value of `results.json`, or of the training function; None if there is none or the log cannot be read.

    Raises UnreportableResult if a function returned what cannot be reported.
    """
    try:
        return parse_results(
            line.text for line in read_logs(RetryingCluster(cluster), trainjob, LogSelector(rank=0, tail=_RESULT_TAIL_LINES))
        )
    except ApiError as error:  # the training has succeeded, whatever of its log can be read
        log.warning("event=results_not_read name=%s error=%s", name_of(trainjob), error.message)
        return None


def parse_results(lines: Iterable[str]) -> Any:
    """Return the value encoded in the launcher's lines; None if lines are missing or the value is not JSON.

    Raises UnreportableResult for the reason that a function reports in place of its result.
    Values that not every reader of JSON accepts, such as NaN, are null, with a warning; one without a key is under `value`.
    """
    content = joined_parts(_RESULT_LINE, lines, lambda text: base64.b64decode(text, validate=True))
    if content is None:
        return None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):  # printed by another program with the same mark
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
    return _RESULT_LINE.search(text) is not None


class UnreportableResult(ValueError):
    """The job succeeded, but its function returned a value that cannot be reported. A retry cannot succeed."""


def read_training_log(cluster: Cluster, trainjob: Obj) -> TrainingLog:
    """Return what the log of rank 0 says; nothing if it cannot be read."""
    try:
        return training_log_in(
            line.text for line in read_logs(RetryingCluster(cluster), trainjob, LogSelector(rank=0, tail=_TAIL_LINES))
        )
    except ApiError as error:
        log.debug("event=training_log_not_read name=%s error=%s", name_of(trainjob), error.message)
        return TrainingLog()


def training_log_in(lines: Iterable[str]) -> TrainingLog:
    """Return what these lines say: those of a history, else the metrics that are printed line by line. Pure."""
    texts = list(lines)
    if entries := parse_history(texts):  # whole, where the lines are cut to the end of the log
        return TrainingLog(entries, divergence_in(entries))
    reports = [dict(parsed.metrics) for text in texts if (parsed := parse_progress(text)) is not None and parsed.metrics]
    printed = (_numbers(report) for report in reports if "step" in report)
    return TrainingLog(tuple(entry for entry in printed if "step" in entry), divergence_in(reports))


def _numbers(report: Mapping[str, str]) -> dict[str, float]:
    numbers = {}
    for name, text in report.items():
        try:
            numbers[name] = float(text)
        except ValueError:
            continue
    return numbers


@dataclass(frozen=True)
class TrainingLog:
    """`entries` are the logged values, each with its `step`."""

    entries: tuple[Mapping[str, float], ...] = ()
    divergence: Divergence | None = None

    def divergence_with(self, reported: DivergenceDetector) -> Divergence | None:
        """Return the divergence of the training, of whose reports this detector has followed those that could be seen."""
        return self.divergence if self.divergence is not None or self.entries else reported.ended()


def parse_history(lines: Iterable[str]) -> tuple[Mapping[str, float], ...]:
    """Return the entries, each with its `step`; none if there are no such lines, or some are missing."""
    if (packed := joined_parts(_HISTORY_LINE, lines)) is None:
        return ()
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(packed), _MAX_HISTORY_BYTES)
        entries = json.loads(content)
    except (binascii.Error, zlib.error, ValueError, RecursionError) as error:
        log.warning("event=history_invalid error=%s", error)
        return ()
    return tuple(entry for entry in entries if _is_entry(entry)) if isinstance(entries, list) else ()


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and "step" in entry and all(isinstance(value, int | float) for value in entry.values())


def is_history_line(text: str) -> bool:
    """Whether a log line is a part of a history, which is not shown to users."""
    return _HISTORY_LINE.search(text) is not None


def joined_parts(pattern: re.Pattern[str], lines: Iterable[str], decode: Callable[[str], bytes] = str.encode) -> bytes | None:
    """Return the parts that were printed last, decoded and joined; None if there are none, or some are missing.

    What `decode` refuses with ValueError was not printed by the program, and what came before it does not count.
    """
    parts: dict[int, bytes] = {}
    count = 0
    for text in lines:
        if (match := pattern.search(text)) is None:
            continue
        number, total = int(match[1]), int(match[2])
        if number == 1 or total != count:
            parts, count = {}, total
        try:
            parts[number] = decode(match[3])
        except ValueError:  # not printed by the program, see above
            parts, count = {}, 0
    if not count or sorted(parts) != list(range(1, count + 1)):  # a part of a value would be another value
        return None
    return b"".join(parts[number] for number in sorted(parts))


def numbered_line(mark: str) -> re.Pattern[str]:
    """Return the pattern of a part: `MARK NUMBER/COUNT TEXT`, where the text is of base64."""
    return re.compile(rf"{re.escape(mark)} (\d{{1,4}})/(\d{{1,4}}) ([A-Za-z0-9+/=]*)")


_RESULT_LINE = numbered_line("trainwright-result")


_HISTORY_LINE = numbered_line("trainwright-history")
