"""The metrics that a waiting step has seen, as a loss curve: each report once, with its step."""

from __future__ import annotations

from trainwright.evaluation.metric_history import MetricHistory
from trainwright.jobs.wait.job_events import Metrics, StatusMessage


def reported(*reports: dict[str, str]) -> MetricHistory:
    history = MetricHistory()
    for report in reports:
        history((StatusMessage("x"), Metrics(tuple(report.items()))))
    return history


def test_a_report_has_the_values_that_changed_and_its_step() -> None:
    history = reported(
        {"loss": "2", "epoch": "1", "step": "5"}, {"loss": "1", "epoch": "1", "step": "10"}, {"loss": "1", "step": "15"}
    )
    assert history.entries == [{"loss": 2.0, "epoch": 1.0, "step": 5}, {"loss": 1.0, "step": 10}]


def test_reports_without_a_step_are_counted() -> None:
    assert [entry["step"] for entry in reported({"loss": "2"}, {"loss": "nan"}, {"loss": "1"}).entries] == [1, 2]


def test_the_curve_is_drawn_from_them() -> None:
    assert "<svg" in reported({"loss": "2", "step": "1"}, {"loss": "1", "step": "2"}).loss_curve()
    assert reported({"accuracy": "1"}).loss_curve() == "<p>The training reported no loss.</p>"


def test_a_long_training_is_thinned_out() -> None:
    history = reported(*({"loss": str(step), "step": str(step)} for step in range(1, 20_010)))
    assert 10_000 < len(history.entries) < 20_000
    assert history.entries[0]["step"] == 1
    assert history.entries[-1]["step"] == 20_009
