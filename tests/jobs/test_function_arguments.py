"""Arguments of a training function: checked against its signature, and converted from text by its annotations."""

from __future__ import annotations

from typing import Any

import pytest
from factories import train_request

from trainwright.jobs.code.function_arguments import signature_of
from trainwright.jobs.code.function_source import NamedSource
from trainwright.jobs.request.invalid_settings import InvalidSettings


def arguments_of(annotation: str, value: Any) -> Any:
    """The argument that a function with one parameter gets."""
    parameter = f"x: {annotation}" if annotation else "x"
    return train_request(func=f"def fit({parameter}): ...", func_args={"x": value}).func_args["x"]


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        ("int", "4", 4),
        ("int", "4.0", 4),
        ("int", 4.0, 4),
        ("float", "1e-4", 1e-4),
        ("float", 1, 1.0),
        ("float", 2.0, 2.0),
        ("bool", "false", False),
        ("bool", "False", False),
        ("bool", "True", True),
        ("bool", 0, False),
        ("str", "4", "4"),
        ("str", "false", "false"),
        ("list", "[1, 2]", [1, 2]),
        ("list", "['a', \"b'c\"]", ["a", "b'c"]),
        ("list[float]", [1, 2], [1.0, 2.0]),
        ("List[int]", "[1.0, 2.0]", [1, 2]),
        ("tuple[int, ...]", ["1", 2], [1, 2]),
        ("dict", '{"a": [1]}', {"a": [1]}),
        ("Dict[str, bool]", {"a": "false"}, {"a": False}),
        ("dict[str, list[float]]", {"a": [1]}, {"a": [1.0]}),
        ("typing.Optional[int]", "", None),
        ("Optional[int]", "4.0", 4),
        ("int | None", None, None),
        ("'int'", "4", 4),
        ("Literal['a', 'b']", "a", "a"),
        ("Literal[1, 2]", "2", 2),
        ("Union[int, list[int]]", "[1]", [1]),
        ("int | float", 0.5, 0.5),
        ("Annotated[int, 'steps']", "3", 3),
        ("Config", "4", "4"),
        ("", "4", "4"),
        ("Any", False, False),
    ],
)
def test_argument_is_converted_by_its_annotation(annotation: str, value: Any, expected: Any) -> None:
    found = arguments_of(annotation, value)
    assert (found, type(found)) == (expected, type(expected))
    if isinstance(expected, list):
        assert [type(one) for one in found] == [type(one) for one in expected]


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        ("int", "4.5", "expected an integer, got '4.5'"),
        ("int", 4.5, "expected an integer"),
        ("int", "", "expected an integer"),
        ("int", True, "expected an integer, got True"),
        ("float", "nan", "expected a number"),
        ("float", False, "expected a number"),
        ("bool", "maybe", "expected true or false"),
        ("bool", 2, "expected true or false"),
        ("str", False, "expected text, got False"),
        ("str", 4, "expected text"),
        ("list", "a, b", "expected a list"),
        ("list", {"a": 1}, "expected a list"),
        ("list[int]", ["a"], r"\[0\]: expected an integer"),
        ("dict[str, int]", {"a": "b"}, r"\['a'\]: expected an integer"),
        ("int", None, "expected an integer, got None"),
        ("int | str", "4", "'4' is ambiguous: it may be an integer or text"),
        ("Optional[str]", "None", "ambiguous"),
        ("Literal['a', 'b']", "c", "expected one of 'a', 'b'"),
    ],
)
def test_unfit_argument_is_refused_with_its_name(annotation: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidSettings, match=f"func_args: .*x.*{words}"):
        arguments_of(annotation, value)


def test_unknown_and_missing_arguments_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        InvalidSettings, match=r"no argument 'stepz' \(did you mean steps\?\); fit\(\) needs the argument 'steps'"
    ):
        train_request(func="def fit(steps: int): ...", func_args={"stepz": 3})
    with pytest.raises(InvalidSettings, match="func_args: fit\\(\\) needs the arguments 'a', 'b'"):
        train_request(func="def fit(a, *, b, c=1): ...")
    with pytest.raises(InvalidSettings, match="it takes no arguments"):
        train_request(func="def fit(): ...", func_args={"x": 1})
    with pytest.raises(InvalidSettings, match="'a' cannot be passed by name"):
        train_request(func="def fit(a, /): ...", func_args={"a": 1})


def test_all_unfit_arguments_are_named_at_once() -> None:
    with pytest.raises(InvalidSettings, match="a: expected an integer, got 'x'; b: expected a number, got 'y'"):
        train_request(func="def fit(a: int, b: float): ...", func_args={"a": "x", "b": "y"})


def test_others_are_passed_to_a_function_that_takes_them() -> None:
    request = train_request(func="def fit(a: int, *args, **more: int): ...", func_args={"a": "1", "b": "2"})
    assert request.func_args == {"a": 1, "b": "2"}


def test_none_fits_a_parameter_whose_default_it_is() -> None:
    assert train_request(func="def fit(a: int = None): ...", func_args={"a": None}).func_args == {"a": None}


def test_signature_is_that_of_the_called_function() -> None:
    source = "def helper(a): ...\ndef fit(b: int, c='x', *, d: float = 1 / 2) -> float: ...\n"
    signature = signature_of(NamedSource(name="fit", source=source))
    assert {name: (one.is_required, one.default) for name, one in signature.parameters.items()} == {
        "b": (True, None),
        "c": (False, "'x'"),
        "d": (False, "1 / 2"),
    }
    assert signature.returns.kind == "float"
