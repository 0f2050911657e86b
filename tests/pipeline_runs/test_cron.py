"""Cron expressions: what servers of Kubeflow Pipelines take, what they would misread, and what is nonsense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.pipeline_runs.cron import CronExpression
from trainwright.pipeline_runs.errors import BadSchedule


@pytest.mark.parametrize(
    "text",
    [
        "0 0 3 * * *",
        "30 */15 0-6 1,15 JAN,jul ?",
    ],
)
def test_six_fields_are_kept(text: str) -> None:
    assert CronExpression.parse(text) == CronExpression(text)


def test_five_fields_get_second_0() -> None:
    """A server would read them as second, minute, hour, day and month."""
    assert CronExpression.parse("0  3 * * *") == CronExpression("0 0 3 * * *", seconds_were_added=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 fields"),
        ("* * *", "3 fields"),
        ("0 0 3 * * * *", "7 fields"),
        ("nonsense", "1 fields"),
        ("@daily", "only fields"),
        ("TZ=UTC 0 3 * * *", "only fields"),
        ("60 0 3 * * *", "second: '60' is not one number"),
        ("* 0 3 * * *", "several runs a minute"),
        ("*/30 0 3 * * *", "several runs a minute"),
        ("1,2 0 3 * * *", "several runs a minute"),
        ("0 0 3 \u0663 * *", "ASCII"),
        ("0 " * 200, "at most 200"),
    ],
)
def test_text_that_a_server_would_misread_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadSchedule, match=r"^cron: ") as caught:
        CronExpression.parse(text)
    assert said in str(caught.value)


@given(st.text(max_size=60) | st.lists(st.text("0123456789*/,-?JANMOSU", max_size=6), max_size=8).map(" ".join))
def test_property_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        expression = CronExpression.parse(text)
    except BadSchedule:
        return
    assert len(expression.text.split(" ")) == 6
    assert CronExpression.parse(expression.text) == CronExpression(expression.text)
