"""JSON of others is bounded, and accepted by the encoder of the server."""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.ui.models.foreign_json import MAX_TEXT, MAX_VALUES, shown_figures, shown_json, shown_number, shown_text

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(), max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.text(st.characters(), max_size=5), inner, max_size=5)
    ),
    max_leaves=30,
)


@given(JSON)
def test_any_json_can_be_sent(value: Any) -> None:
    orjson.dumps(shown_json(value))
    orjson.dumps(shown_text(value))


def test_depth_size_and_texts_are_bounded() -> None:
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    assert len(orjson.dumps(shown_json(deep))) < 100
    assert len(shown_json(list(range(100_000)))) <= MAX_VALUES
    assert len(shown_json("x" * 100_000)) == MAX_TEXT
    assert shown_text("\ud800ab") == "?ab"


@pytest.mark.parametrize("value", [math.nan, math.inf, 2**70, True, "1", None])
def test_values_other_than_numbers_become_none(value: Any) -> None:
    assert shown_number(value) is None


def test_figures_keep_numbers_and_texts() -> None:
    found = shown_figures({"loss": 1.5, "rows": 10, "bad": math.nan, "digest": "sha256:0", "held_out": True, "list": [1]})
    assert found == {"loss": 1.5, "rows": 10, "bad": None, "digest": "sha256:0", "held_out": True}
