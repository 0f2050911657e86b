"""The policies of Jobs, as tables: pure functions over a Job and its pods."""

from __future__ import annotations

import pytest
from factories import pod
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.indexes import indexes_text, parse_indexes
from trainwright.controlplane.controllers.job.pod_failure_policy import counts


@given(st.sets(st.integers(0, 60)))
def test_property_index_texts_can_be_read_back(indexes: set[int]) -> None:
    assert parse_indexes(indexes_text(indexes), 61) == indexes


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        ("0-999999999999999", {0, 1, 2}),
        ("1,2-9,x,-1,4-", {1, 2}),
        ("9" * 5000, set()),
        ("²", set()),
        ("7-3", set()),
        (None, set()),
    ],
)
def test_index_texts_that_no_controller_wrote(text: str | None, indexes: set[int]) -> None:
    assert parse_indexes(text, 3) == indexes


@pytest.mark.parametrize(("seen", "is_counted"), [([{"type": "DisruptionTarget", "status": "True"}], False), ([], True)])
def test_evictions_do_not_count_where_a_rule_ignores_them(seen: list[dict[str, str]], is_counted: bool) -> None:
    ignored = {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}}
    assert counts(ignored, pod("work-0", phase="Failed", status={"conditions": seen})) is is_counted
