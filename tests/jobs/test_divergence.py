"""A training has diverged when its loss, or its gradients, are not finite and stay so; single steps of fp16 are none."""

from __future__ import annotations

import pytest

from trainwright.jobs.logs.training_log import training_log_in
from trainwright.jobs.state.progress import DivergenceDetector

FINE = {"loss": "1.5", "grad_norm": "2"}
NAN = {"loss": "nan", "grad_norm": "nan"}
OVERFLOW = {"loss": "1.5", "grad_norm": "inf"}
FILTERED = {"loss": "0.0", "grad_norm": "nan"}
"""As transformers logs NaN unless told otherwise."""


def after(*reports: dict[str, str], steps: bool = True) -> DivergenceDetector:
    detector = DivergenceDetector()
    for number, report in enumerate(reports, start=1):
        detector.observe({**report, "step": str(10 * number)} if steps else report)
    return detector


@pytest.mark.parametrize(
    ("reports", "running", "ended"),
    [
        ([FINE, FINE], False, False),
        ([FINE, NAN], False, True),
        ([FINE, NAN, NAN, FINE], False, False),
        ([FINE, NAN, NAN, NAN], True, True),
        ([{"loss": "inf"}] * 3, True, True),
        ([FINE, OVERFLOW], False, False),
        ([*[OVERFLOW] * 8, FINE], False, False),
        ([OVERFLOW] * 3, False, True),
        ([OVERFLOW] * 10, True, True),
        ([FINE, {"loss": "1.5", "grad_norm": "nan"}], False, True),
        ([FINE, FILTERED], False, True),
        ([FINE, {"train_loss": "nan"}], False, False),
        ([{"train_loss": "NaN"}] * 3, True, True),
        ([FINE, {"eval_loss": "nan"}], False, False),
        ([], False, False),
    ],
)
def test_figures_that_stay_not_finite_are_a_divergence(reports: list[dict[str, str]], running: bool, ended: bool) -> None:
    detector = after(*reports)
    assert (detector.running() is not None, detector.ended() is not None) == (running, ended)


def test_repeated_report_counts_once() -> None:
    detector = DivergenceDetector()
    for _ in range(5):
        detector.observe({**NAN, "step": "10", "current_step": "12"})
        detector.observe({**NAN, "epoch": "0.5"}, "a time")
        detector.observe({**NAN, "epoch": "0.5"}, "a later time")
    assert detector.running() is not None
    detector = DivergenceDetector()
    for time in ("1", "2", "2", "2"):
        detector.observe({**NAN, "epoch": "0.5"}, time)
    assert detector.running() is None


@pytest.mark.parametrize(
    "text", ['{"loss": NaN, "step": 3}', '{"loss": -Infinity, "step": 3}', "step=3 loss=nan", "1|3|Loss: nan: 20%"]
)
def test_figures_that_are_not_finite_are_parsed_in_every_notation(text: str) -> None:
    found = training_log_in([text]).divergence
    assert found is not None
    assert found.since == "step 3"
