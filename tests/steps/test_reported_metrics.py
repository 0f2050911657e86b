"""Metrics in an artifact whose backend keeps six decimals."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.steps.reported_metrics import log_metrics


class Artifact:
    """As `dsl.Metrics`: numbers and other values are both metadata."""

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}
        self.numbers: dict[str, float] = {}

    def log_metric(self, name: str, value: float) -> None:
        self.numbers[name] = round(value, 6)  # as the backend stores it


@pytest.mark.parametrize(
    ("value", "numbers", "metadata"),
    [
        ("0.5", {"m": 0.5}, {}),
        (2.0, {"m": 2.0}, {}),
        ("0", {"m": 0.0}, {}),
        ("6.667e-06", {"m_e-6": 6.667}, {"m_text": "6.667e-06"}),
        ("-2e-5", {"m_e-6": -20.0}, {"m_text": "-2e-5"}),
        ("nan", {}, {"m": "nan"}),
        ("inf", {}, {"m": "inf"}),
        ("12 rows", {}, {"m": "12 rows"}),
    ],
)
def test_no_digit_that_matters_is_lost(value: str | float, numbers: dict[str, float], metadata: dict[str, str]) -> None:
    artifact = Artifact()
    log_metrics(artifact, {"m": value})
    assert artifact.numbers == pytest.approx(numbers)
    assert artifact.metadata == metadata
