"""Values of pipeline parameters inside objects and lists, which arrive as text with their type."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.typed_parameters import marked, typed_parameters


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("func_args", {"a": marked("4.0", "int"), "b": [marked("false", "bool")]}, {"a": 4, "b": [False]}),
        ("func_args", {"a": marked("0.0001", "float"), "b": marked("x", "str"), "c": "x"}, {"a": 1e-4, "b": "x", "c": "x"}),
        ("settings", json.dumps({"steps": marked("4.0", "int"), "cpu": True}), {"steps": 4, "cpu": True}),
        ("settings", {"a": marked("[1.0, 2.0]", "list"), "b": marked(4.0, "int")}, {"a": [1.0, 2.0], "b": 4}),
        ("env", {"N": marked("7.0", "int"), "B": marked("false", "bool"), "V": "8.0"}, {"N": "7", "B": "false", "V": "8.0"}),
        ("args", ["--steps", marked("4.0", "int"), marked("1e-05", "float")], ["--steps", "4", "1e-05"]),
        ("settings", {"rate": marked("0.5", "int")}, {"rate": 0.5}),
        (
            "limits",
            {"restarts": marked("2.0", "int"), "fail_if_stuck": marked("False", "bool")},
            {"restarts": 2, "fail_if_stuck": False},
        ),
        ("placement", {"node_selector": {"n": marked("7.0", "int")}}, {"node_selector": {"n": "7"}}),
        ("data", json.dumps({"dataset_env": {"N": marked("7.0", "int")}}), {"dataset_env": {"N": "7"}}),
        ("run_id", "x", "x"),
    ],
)
def test_marked_value_has_its_type(name: str, value: Any, expected: Any) -> None:
    found = typed_parameters(TrainRequest, {name: value})[name]
    assert found == expected
    assert repr(found) == repr(expected)


@pytest.mark.parametrize(("value", "of_type"), [("x", "int"), ("nan", "float"), ("maybe", "bool"), ("[1", "list")])
def test_text_of_another_type_is_refused_with_its_path(value: str, of_type: Any) -> None:
    with pytest.raises(ValueError, match=f"settings.a.b: expected a value of type {of_type}$"):
        typed_parameters(TrainRequest, {"settings": {"a": {"b": marked(value, of_type)}}})


@pytest.mark.parametrize("text", ["false", "4.0", "[1, 2]", "null", "{}"])
def test_ambiguous_text_for_an_argument_without_annotation_is_refused(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"func_args.flag: the text for 'flag' may be meant as another type; annotate .* in fit\(\)"
    ):
        typed_parameters(TrainRequest, {"func": "def fit(flag): ...", "func_args": {"flag": text}})
    for source, value in (
        ("def fit(flag: str): ...", text),
        ("def fit(flag): ...", marked(text, "str")),
        ("def fit(flag): ...", "x"),
    ):
        typed_parameters(TrainRequest, {"func": source, "func_args": {"flag": value}})


def test_quotes_that_break_an_object_are_an_error_that_says_so() -> None:
    text = json.dumps({"layers": marked("LAYERS", "list")}).replace("LAYERS", '["a", "b"]')
    with pytest.raises(ValueError, match=r"func_args: .*a value with quotes inside it"):
        typed_parameters(TrainRequest, {"func_args": text})
