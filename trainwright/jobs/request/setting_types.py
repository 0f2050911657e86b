"""The types of settings, which accept the forms in which people and orchestrators write values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from trainwright.api.names import CACHE_SCHEME
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
from trainwright.jobs.request.workspace import Workspace
from trainwright.jobs.state.run_folder import prepared_folder
from trainwright.text.hub_names import with_scheme

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+")


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


def _runtime_name(value: str) -> str:
    if len(value) > 253:
        raise ValueError("expected at most 253 characters")
    return value


def _image_name(value: str) -> str:
    if value and re.search(r"\s", value):
        raise ValueError(f"{value!r} is not the name of an image")
    return value


def _source_uri(value: str) -> str:
    value = with_scheme(value)
    if value and not _URI.fullmatch(value):
        raise ValueError(f"{value!r} is not a URI such as hf://org/name or file:///path")
    if value.startswith(CACHE_SCHEME):
        from trainwright.datacache.settings import uri_problem  # most trainings have no cache

        if problem := uri_problem(value):
            raise ValueError(problem)
    if value.startswith("pvc://") and Workspace.parse(value, "pvc").new is not None:
        raise ValueError(f"{value!r}: a new claim contains nothing")
    return value


def _digest(value: str) -> str:
    if value:
        prepared_folder("dataset", value)
    return value


def _manifest(value: Any, info: Any) -> Structure | None:
    found: Structure | None = checks().checked_manifest(value, info)
    return found


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
RuntimeName = Annotated[str, Check(_runtime_name)]
ImageName = Annotated[str, Check(_image_name)]
SourceUri = Annotated[str, Check(_source_uri)]
"""Of a dataset or a model."""
PreparedDigest = Annotated[str, Check(_digest)]
Manifest = Annotated[Structure | None, Form("manifest", _manifest, has_context=True)]
