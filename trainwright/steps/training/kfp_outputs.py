"""Outputs of components that Kubeflow Pipelines can keep: metrics of a training as an artifact, and values without NaN.

The backend keeps six decimals of a metric and no more. A metric has the same name in every run, whatever its size, so that runs can
be compared. Values that KFP's launcher cannot read, such as NaN, become null, with a warning. Every component's program installs
this before its function runs. Without it, a step would fail at its end, after all its work.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainwright.api.finite_json import finite_json
from trainwright.jobs.request.typed_parameters import has_large_integer
from trainwright.jobs.state.progress import is_not_finite
from trainwright.jobs.wait.job_events import finite

EXACT = "exact"
"""Key of the metadata with all numbers as they were reported, as JSON."""
_RATE = re.compile(r"(?:^|[_./-])(?:learning_rate|lr)(?:$|[_./-])")
"""Names of learning rates: six decimals of 6.667e-06 are 7e-06, so these are always in millionths."""
_UNIT, _UNITS = "_e-6", 1e6
log = logging.getLogger(__name__)
_INSTALLED = "_trainwright_finite_outputs"


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


def finite_metrics(metrics: Mapping[str, Any], results: Any = None) -> dict[str, Any]:
    """Return metrics and the numbers in the result of a program without those that are not finite, for JSON."""
    reported = {**metrics, **result_numbers(results)}
    return {name: value for name, value in reported.items() if not is_not_finite(str(value))}


def install() -> None:
    """Make kfp's executor in this process write null for values that are not finite, in parameters and in artifacts' metadata."""
    from kfp.dsl.executor import Executor

    if hasattr(Executor, _INSTALLED):  # once per process
        return
    handle, write = Executor.handle_single_return_value, Executor.write_executor_output

    def handle_finite(self: Any, output_name: str, annotation_type: Any, return_value: Any) -> None:
        value = _finite(return_value, output_name)
        if value is None and return_value is not None:
            self.excutor_output.setdefault("parameterValues", {})[output_name] = None
        else:
            handle(self, output_name, annotation_type, value)

    def write_finite(self: Any, func_output: Any = None) -> Any:
        for name, artifact in self.output_artifacts.items():
            artifact.metadata = _finite(artifact.metadata, name)
        return write(self, func_output)

    Executor.handle_single_return_value, Executor.write_executor_output = handle_finite, write_finite
    setattr(Executor, _INSTALLED, True)


def _finite(value: Any, output: str) -> Any:
    if isinstance(value, tuple):
        return value
    found = finite_json(value)
    for change in found.changed:
        log.warning("event=output_changed output=%s %s", output, change)
    if has_large_integer(found.value):
        log.warning("event=output_changed output=%s: an integer of 2**53 or above, which a server keeps as a double", output)
    return found.value if found.changed else value
