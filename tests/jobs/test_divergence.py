"""A training has diverged when its loss, or its gradients, are not finite and stay so; single steps of fp16 are none."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.jobs.logs.training_log import training_log_in
from trainwright.jobs.state.divergence import Divergence, DivergenceDetector

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


def test_divergence_names_figure_value_and_first_step() -> None:
    found = after(FINE, NAN, NAN, NAN).running()
    assert found == Divergence("loss", "nan", "step 20", 3, "1.5 at step 10")
    assert found.describe() == "loss is nan since step 20 (3 reports in a row); the last finite value was 1.5 at step 10"
    assert Divergence.from_dict(found.as_dict()) == found


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


def test_lines_without_step_are_reports_each() -> None:
    found = after(FINE, NAN, NAN, NAN, steps=False).running()
    assert found is not None
    assert found.since == "report 2"


def test_counts_reported_by_the_training_are_used() -> None:
    detector = DivergenceDetector()
    detector.observe({**NAN, "step": "17", "loss_not_finite_since": "12", "loss_not_finite_reports": "6"})
    found = detector.running()
    assert found is not None
    assert (found.since, found.reports) == ("step 12", 6)


def line(**figures: Any) -> str:
    return str({name: f"{value}" for name, value in figures.items()})


def test_log_of_an_ended_training_shows_its_divergence() -> None:
    lines = [line(loss=1.5, epoch=0.1), "saving", line(loss="nan", grad_norm="nan", epoch=0.2), line(train_loss="nan", epoch=0.2)]
    found = training_log_in(lines).divergence
    assert found is not None
    assert found.since == "epoch 0.2"
    assert training_log_in(lines[:1]).divergence is None


@pytest.mark.parametrize(
    "text", ['{"loss": NaN, "step": 3}', '{"loss": -Infinity, "step": 3}', "step=3 loss=nan", "1|3|Loss: nan: 20%"]
)
def test_figures_that_are_not_finite_are_parsed_in_every_notation(text: str) -> None:
    found = training_log_in([text]).divergence
    assert found is not None
    assert found.since == "step 3"
