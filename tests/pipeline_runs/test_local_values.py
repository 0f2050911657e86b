"""Values as a server writes them into text, and as the types that components declare."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.pipeline_runs.local_values import BadValue, as_text, filled, items_of, not_carried, restored, selected, typed

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (7.0, "7"),
        (0.1, "0.1"),
        (1e-7, "0.0000001"),
        (1e21, "1000000000000000000000"),
        (-2.50, "-2.5"),
        (2**53 + 1, "9007199254740993"),
        (True, "true"),
        (None, "null"),
        ('it\'s "é"', 'it\'s "é"'),
        (["é", 1, {"a": None}], '["é", 1, {"a": null}]'),
    ],
)
def test_text_of_a_value_is_that_of_a_server(value: Any, text: str) -> None:
    assert as_text(value) == text


@pytest.mark.parametrize(
    ("value", "of_type", "expected"),
    [
        (3.0, "NUMBER_INTEGER", 3),
        (2.5, "NUMBER_INTEGER", 2.5),
        ("12", "NUMBER_INTEGER", 12),
        (3, "NUMBER_DOUBLE", 3.0),
        ("True", "BOOLEAN", True),
        ('["a"]', "LIST", ["a"]),
        ({"a": 1}, "STRING", '{"a": 1}'),
        (2**53 + 1, "NUMBER_DOUBLE", 2**53 + 1),
    ],
)
def test_value_becomes_what_a_component_declares(value: Any, of_type: str, expected: Any) -> None:
    found = typed(value, of_type)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("value", "of_type"), [("x", "NUMBER_INTEGER"), (True, "NUMBER_INTEGER"), (1, "BOOLEAN"), ("{", "STRUCT"), ([1], "STRUCT")]
)
def test_value_of_another_type_is_refused(value: Any, of_type: str) -> None:
    with pytest.raises(BadValue, match=f"expected a value of type {of_type}"):
        typed(value, of_type)


@pytest.mark.medium
@given(st.dictionaries(st.text(min_size=1), JSON, min_size=1, max_size=3))
def test_objects_and_lists_survive_as_text(value: dict[str, Any]) -> None:
    assert typed(as_text(value), "STRUCT") == value
    assert items_of(as_text([value])) == [value]


@given(st.text(), st.text())
def test_text_of_a_value_is_never_replaced_again(before: str, value: str) -> None:
    value += "{{$.inputs.parameters['other']}}{{$.pipeline_job_uuid}}"
    constant = {"a": [before.replace("{", "") + "{{$.inputs.parameters['x']}}"], "b": 1}
    found = filled(constant, {"x": value}.__getitem__, {"{{$.pipeline_job_uuid}}": "id"})
    assert found == {"a": [before.replace("{", "") + value], "b": 1}


def test_values_of_the_run_are_filled_in_and_others_stay() -> None:
    texts = {"k{{$.pipeline_job_uuid}}": "{{$.pipeline_job_uuid}} {{$.unknown}}"}
    assert filled(texts, {}.__getitem__, {"{{$.pipeline_job_uuid}}": "id"}) == {"kid": "id {{$.unknown}}"}


def test_integers_of_the_compiler_are_restored() -> None:
    assert json.dumps(restored({"a": [3.0, 2.5, "3.0", True, 1e300]})) == '{"a": [3, 2.5, "3.0", true, 1e+300]}'


def test_field_of_an_item_is_selected_with_any_key() -> None:
    item = {"a\"b']": [1], "c": None}
    assert selected(json.dumps(item), 'parseJson(string_value)["a"b\']"]') == [1]
    assert selected(item, 'parseJson(string_value)["c"]') is None
    with pytest.raises(BadValue, match="has no 'd'"):
        selected(item, 'parseJson(string_value)["d"]')
    with pytest.raises(BadValue, match="the selector 'x' is unknown"):
        selected(item, "x")


def test_values_that_a_server_changes_are_named() -> None:
    assert not_carried([2**53 - 1, "x"]) == ""
    assert "2**53" in not_carried({"a": [2**53 + 1]})
    assert "not finite" in not_carried([float("nan")])
    assert not_carried({"a": 1.5}) == ""
