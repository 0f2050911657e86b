"""The types of settings, which accept the forms in which orchestrators pass values."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from trainwright.jobs.request.setting_values import deadline_of, normalize_resources, optional_number, parse_structure, seconds_of
from trainwright.jobs.request.variables import Variables

Structure = dict[str, Any]
Texts = Annotated[list[str], BeforeValidator(lambda value: parse_structure(value) or [])]
Labels = Annotated[dict[str, str], BeforeValidator(lambda value: parse_structure(value) or {})]
Object = Annotated[Structure, BeforeValidator(lambda value: parse_structure(value) or {})]
Objects = Annotated[list[Structure], BeforeValidator(lambda value: parse_structure(value) or [])]
Env = Annotated[Variables, BeforeValidator(lambda value: parse_structure(value) or {})]
Resources = Annotated[dict[str, dict[str, str]], BeforeValidator(lambda value: normalize_resources(parse_structure(value)) or {})]
Number = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(optional_number)]
Seconds = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(lambda value: optional_number(seconds_of(value)))]
Deadline = Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(deadline_of)]
"""Seconds; 0 is no limit, None is not set."""
Nodes = Annotated[Annotated[int, Field(ge=1, le=100000)] | None, BeforeValidator(optional_number)]
