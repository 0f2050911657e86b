"""Values of parameters: by name and type of the pipeline, from texts and from documents."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.pipeline_runs.errors import BadParameters
from trainwright.pipeline_runs.parameters import check_submitted, check_values, given_values, parameter_specs

SPECS = parameter_specs(
    {
        "parameters": {
            "uri": {"parameterType": "STRING"},
            "nodes": {"parameterType": "NUMBER_INTEGER", "defaultValue": 1.0, "isOptional": True},
            "rate": {"parameterType": "NUMBER_DOUBLE", "defaultValue": 0.1},
            "loud": {"parameterType": "BOOLEAN", "isOptional": True},
            "words": {"parameterType": "LIST", "defaultValue": []},
            "options": {"parameterType": "STRUCT", "defaultValue": {}, "description": "Options."},
            "mode": {"parameterType": "STRING", "literals": ["fast", "slow"], "isOptional": True},
        },
        "artifacts": {"model": {"artifactType": {"schemaTitle": "system.Model"}, "isOptional": True}},
    }
)


def problems_of(*texts: str, document: Any = None) -> list[str]:
    with pytest.raises(BadParameters) as caught:
        given_values(SPECS, texts, document)
    return caught.value.problems


def test_required_parameters_have_neither_a_default_nor_may_be_left_out() -> None:
    assert [name for name, spec in SPECS.items() if spec.is_required] == ["uri"]
    assert (SPECS["options"].type, SPECS["options"].description) == ("dict", "Options.")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("uri=s3://a?b=c", "s3://a?b=c"),
        ("uri=", ""),
        ("uri=3", "3"),
        ("uri=true", "true"),
        ("nodes=4", 4),
        ("nodes=-1", -1),
        ("rate=2e-4", 2e-4),
        ("rate=3", 3.0),
        ("loud=true", True),
        ("loud=False", False),
        ('words=["a", 1]', ["a", 1]),
        ('options={"a": {"b": [1]}}', {"a": {"b": [1]}}),
        ("mode=fast", "fast"),
    ],
)
def test_texts_are_parsed_by_the_type_of_the_parameter(text: str, value: Any) -> None:
    [(_, found)] = given_values(SPECS, [text]).items()
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes=two", "nodes: expected int, got 'two'"),
        ("nodes=1.5", "nodes: expected int"),
        ("nodes=" + "9" * 20, "nodes: 99999999999999999999 is larger"),
        ("nodes=" + "9" * 5000, "nodes: expected int"),
        ("rate=nan", "rate: expected float"),
        ("rate=1e999", "rate: inf is larger"),
        ("loud=1", "loud: expected bool"),
        ("words=a,b", "words: expected a JSON list"),
        ('words={"a": 1}', "words: expected list"),
        ("options=[]", "options: expected dict"),
        ('options={"a": 1, "a": 2}', "options: expected a JSON dict"),
        ("mode=medium", "mode: expected one of fast, slow"),
        ("uri=\udc80", "uri: is not valid text"),
        ("model=x", "model: is an input of the type artifact"),
        ("uri", "'uri' is not of the form KEY=VALUE"),
    ],
)
def test_wrong_types_are_refused(text: str, said: str) -> None:
    assert any(problem.startswith(said) for problem in problems_of(text))


def test_unknown_names_are_refused_with_all_that_are_known() -> None:
    unknown, known = problems_of("noodes=2")
    assert unknown == "'noodes' is not a parameter of this pipeline (did you mean nodes?)"
    assert known == "its parameters are loud, mode, model, nodes, options, rate, uri, words"


def test_every_problem_is_named_at_once() -> None:
    found = problems_of("nodes=x", "other=1", "loud=2", document={"rate": "fast"})
    assert [line.split(":")[0].split(" ")[0] for line in found] == ["rate", "nodes", "loud", "'other'", "its"]


def test_texts_override_a_document() -> None:
    assert given_values(SPECS, ["nodes=2"], {"nodes": 1, "uri": "a"}) == {"nodes": 2, "uri": "a"}
    assert problems_of("nodes=1", "nodes=2") == ["nodes: given twice"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"uri": 3}, "uri: expected str, got 3"),
        ({"nodes": True}, "nodes: expected int, got True"),
        ({"nodes": "3"}, "nodes: expected int, got '3'"),
        ({"loud": "true"}, "loud: expected bool"),
        ({"uri": None}, "uri: expected str, got None"),
        ([1], "the parameters of a file are an object"),
    ],
)
def test_values_of_documents_have_their_type_already(document: Any, said: str) -> None:
    assert problems_of(document=document)[0].startswith(said)


def test_whole_floats_are_integers() -> None:
    assert given_values(SPECS, [], {"nodes": 4.0, "rate": 1}) == {"nodes": 4, "rate": 1.0}


def test_missing_required_parameters_are_refused() -> None:
    with pytest.raises(BadParameters, match=r"required, but not given: uri \(str\)"):
        check_values(SPECS, {"nodes": 1})


def test_credentials_are_refused_without_being_repeated() -> None:
    token = "hf_" + "abcdefghijklmnopqrstuvwxyz012345"
    with pytest.raises(BadParameters) as caught:
        check_values(SPECS, {"uri": "a", "options": {"HF_TOKEN": token}})
    assert "options" in str(caught.value)
    assert token not in str(caught.value)


def test_large_parameters_are_refused() -> None:
    with pytest.raises(BadParameters, match="larger than 1 MiB"):
        check_values(SPECS, {"uri": "x" * 2**20})


@pytest.mark.parametrize("value", ["{{$.pipeline_job_uuid}}", "a-[[ScheduledTime]]", ["[[Index]]"]])
def test_placeholders_are_refused_since_servers_keep_them(value: Any) -> None:
    with pytest.raises(BadParameters, match="uri: placeholders"):
        check_submitted({"uri": value})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.medium
@given(st.sampled_from(sorted(SPECS)), JSON)
def test_property_a_value_is_kept_exactly_or_refused(name: str, value: Any) -> None:
    try:
        [found] = given_values(SPECS, [], {name: value}).values()
    except BadParameters:
        return
    assert found == value
    assert math.isfinite(found) if isinstance(found, float) else True
    if isinstance(found, list | dict):
        assert given_values(SPECS, [f"{name}={json.dumps(value)}"]) == {name: value}


@given(st.sampled_from(sorted(SPECS)), st.text(max_size=40))
def test_property_any_text_is_parsed_or_refused(name: str, text: str) -> None:
    try:
        [found] = given_values(SPECS, [f"{name}={text}"]).values()
    except BadParameters:
        return
    assert type(found).__name__ == SPECS[name].type
