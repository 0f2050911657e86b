"""Metrics of a training as an artifact of Kubeflow Pipelines, whose backend keeps six decimals of a number and no more.

A metric has the same name in every run, whatever its size, so that runs can be compared.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainwright.jobs.state.progress import is_not_finite
from trainwright.jobs.wait.job_events import finite

EXACT = "exact"
"""Key of the metadata with all numbers as they were reported, as JSON."""
_RATE = re.compile(r"(?:^|[_./-])(?:learning_rate|lr)(?:$|[_./-])")
"""Names of learning rates: six decimals of 6.667e-06 are 7e-06, so these are always in millionths."""
_UNIT, _UNITS = "_e-6", 1e6
log = logging.getLogger(__name__)


def log_metrics(artifact: Any, metrics: Mapping[str, Any], results: Any = None) -> None:
    """Log metrics, and the numbers in the result of a program, in a `dsl.Metrics` artifact.

    Learning rates are logged in millionths, under their name and `_e-6`, other numbers as they are, and other texts as metadata.
    What is not finite is left out, with a warning: KFP's launcher cannot read it.
    """
    numbers: dict[str, float] = {}
    for name, value in {**metrics, **result_numbers(results)}.items():
        number = finite(value)
        if number is not None:
            numbers[name] = number
            is_rate = _RATE.search(name) is not None
            artifact.log_metric(f"{name}{_UNIT}" if is_rate else name, number * _UNITS if is_rate else number)
        elif is_not_finite(str(value)):
            log.warning("event=metric_left_out name=%s value=%s reason=it is not finite", name, value)
        else:
            artifact.metadata[name] = str(value)
    if numbers:
        artifact.metadata[EXACT] = json.dumps(numbers, allow_nan=False)


def result_numbers(results: Any) -> dict[str, float]:
    """Return the numbers in the result of a program; those of nested objects under names with dots, a single one as `value`."""
    return dict(_numbers("", results if isinstance(results, dict) else {"value": results}))


def finite_metrics(metrics: Mapping[str, Any], results: Any = None) -> dict[str, Any]:
    """Return metrics and the numbers in the result of a program without those that are not finite, for JSON."""
    reported = {**metrics, **result_numbers(results)}
    return {name: value for name, value in reported.items() if not is_not_finite(str(value))}


def _numbers(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(f"{prefix}{name}.", value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", _as_float(value)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond the largest number
        return math.inf
