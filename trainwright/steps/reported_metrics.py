"""Metrics of a training as an artifact of Kubeflow Pipelines, whose backend keeps six decimals of a number and no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.jobs.wait.metric_changes import finite

_SMALLEST = 1e-3
"""A smaller number would lose digits that matter: a learning rate of 6.667e-06 becomes 7e-06."""
_UNIT = "_e-6"
"""Suffix of a metric in millionths."""


def log_metrics(artifact: Any, metrics: Mapping[str, str | float]) -> None:
    """Log metrics in a `dsl.Metrics` artifact: numbers as such, small ones in millionths under their name and `_e-6`, any other
    value as metadata. The exact text of a small number is kept in the metadata too.
    """
    for name, value in metrics.items():
        number = finite(value)
        if number is None:
            artifact.metadata[name] = str(value)
        elif 0 < abs(number) < _SMALLEST:
            artifact.log_metric(f"{name}{_UNIT}", number * 1e6)
            artifact.metadata[f"{name}_text"] = str(value)
        else:
            artifact.log_metric(name, number)
