"""Metrics in an artifact whose backend keeps six decimals."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trainwright.steps.training.kfp_outputs import finite_metrics, log_metrics


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
        ("0.5", {"m": 0.5}, {"exact": '{"m": 0.5}'}),
        (2.0, {"m": 2.0}, {"exact": '{"m": 2.0}'}),
        ("0", {"m": 0.0}, {"exact": '{"m": 0.0}'}),
        ("6.667e-09", {"m": 0.0}, {"exact": '{"m": 6.667e-09}'}),
        ("nan", {}, {}),
        ("inf", {}, {}),
        (float("nan"), {}, {}),
        ("12 rows", {}, {"m": "12 rows"}),
    ],
)
def test_metric_keeps_its_name_and_its_exact_value(
    value: str | float, numbers: dict[str, float], metadata: dict[str, str]
) -> None:
    artifact = Artifact()
    log_metrics(artifact, {"m": value})
    assert artifact.numbers == pytest.approx(numbers)
    assert artifact.metadata == metadata


@pytest.mark.parametrize("value", [0.5, 2e-4, 6.667e-06, 0.0])
@pytest.mark.parametrize("name", ["learning_rate", "lr", "train/lr", "lr-AdamW", "final.learning_rate"])
def test_learning_rate_has_one_name_and_one_unit(name: str, value: float) -> None:
    artifact = Artifact()
    log_metrics(artifact, {name: str(value)})
    assert artifact.numbers == pytest.approx({f"{name}_e-6": value * 1e6})


def test_other_names_are_no_learning_rates() -> None:
    artifact = Artifact()
    log_metrics(artifact, {"lrx": 1.0, "colr": 1.0})
    assert set(artifact.numbers) == {"lrx", "colr"}


@pytest.mark.parametrize(
    ("results", "numbers"),
    [
        (None, {}),
        (0.5, {"value": 0.5}),
        ("text", {}),
        ([1, 2], {}),
        (
            {"accuracy": 0.5, "rows": 3, "done": True, "name": "x", "by": {"class": {"a": 1}}},
            {"accuracy": 0.5, "rows": 3.0, "by.class.a": 1.0},
        ),
        ({"loss": 1.5, "perplexity": float("nan"), "big": 10**400}, {"loss": 1.5}),
    ],
)
def test_numbers_of_a_result_are_metrics(results: Any, numbers: dict[str, float], caplog: pytest.LogCaptureFixture) -> None:
    artifact = Artifact()
    log_metrics(artifact, {"loss": "2"}, results)
    assert artifact.numbers == {"loss": 2.0, **numbers}
    assert all(math.isfinite(number) for number in artifact.numbers.values())
    assert ("name=perplexity value=nan" in caplog.text) == (isinstance(results, dict) and "perplexity" in results)
    assert finite_metrics({"loss": "2", "bad": "nan"}, results) == {"loss": "2", **numbers}
