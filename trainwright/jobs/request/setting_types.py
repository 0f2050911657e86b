"""The types of settings, which accept the forms in which people and orchestrators write values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from trainwright.jobs.request.setting import Check, Form
from trainwright.jobs.request.setting_values import (
    Variables,
    deadline_of,
    normalize_resources,
    number_of,
    optional_number,
    parse_arguments,
    parse_group,
    parse_items,
    parse_list,
    parse_object,
    seconds_of,
)


def between(least: float, most: float = float("inf")) -> Callable[[Any], Any]:
    """Return a check of a number, which may be None. Raises ValueError."""

    def check(value: Any) -> Any:
        if value is not None and not value >= least:  # nan is not, either
            raise ValueError("expected a number that is not negative" if least == 0 else f"expected at least {least:g}")
        if value is not None and value > most:
            raise ValueError(f"expected at most {most:g}")
        return value

    return check


def checks() -> Any:
    """The module with the checks that import much. `Form` and `Check` take functions that call one, when a request is built."""
    from trainwright.jobs.request import checks

    return checks


Structure = dict[str, Any]
GROUP = Form("group", parse_group)
"""Of a group of settings: an object, or its JSON text."""
Texts = Annotated[list[str], Form("list", parse_list, has_texts=True)]
Items = Annotated[list[Any], Form("list", parse_items)]
Labels = Annotated[dict[str, str], Form("object", parse_object, has_texts=True)]
Object = Annotated[Structure, Form("object", parse_object)]
Arguments = Annotated[Structure, Form("object", parse_arguments)]
Objects = Annotated[list[Structure], Form("list", parse_list)]
Env = Annotated[Variables, Check(lambda value: checks().known_variables(value)), Form("object", parse_object, has_texts=True)]
Resources = Annotated[dict[str, dict[str, str]], Form("object", lambda value: normalize_resources(parse_object(value)))]
Count = Annotated[int, Check(between(0)), Form("integer", number_of)]
Number = Annotated[int | None, Check(between(1)), Form("integer", optional_number)]
Nodes = Annotated[int | None, Check(between(1, 100_000)), Form("integer", optional_number)]
Amount = Annotated[float, Check(between(0, 1e300)), Form("number", number_of)]
Seconds = Annotated[int | None, Check(between(1)), Form("seconds", lambda value: optional_number(seconds_of(value)))]
Deadline = Annotated[int | None, Check(between(0)), Form("seconds", deadline_of)]
"""Seconds; 0 is no limit, None is not set."""
LeaseSeconds = Annotated[int, Check(between(0)), Form("seconds", seconds_of)]
