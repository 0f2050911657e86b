"""The language in which the schemas of our kinds are written: what a value may be, and the rules that types cannot say.

One table in this language gives defaulting, pruning, strict checking, the checks themselves and the CustomResourceDefinitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Rule:
    """A condition on one value: in CEL for a cluster that checks it by itself, in Python for us.

    A rule on a change has `keeps` instead of `holds`, and is asked only where there is a value before and after.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool] | None = None
    keeps: Callable[[Any, Any], bool] | None = None
    about: str = ""
    """The field that a reader should look at, where the rule stands on an object around it."""


def unchanged(message: str) -> Rule:
    """The rule that a present value stays as it is; adding or removing it is no change."""
    return Rule("self == oldSelf", message, keeps=lambda old, new: bool(old == new))


@dataclass(frozen=True, eq=False)
class Schema:
    """What a value may be. `default` fills an absent value."""

    default: Any = field(default=None, kw_only=True)
    rules: tuple[Rule, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, eq=False)
class AnyValue(Schema):
    """Passed through unchecked."""


@dataclass(frozen=True, eq=False)
class String(Schema):
    at_least: int = 0
    at_most: int | None = None
    pattern: str | None = None
    one_of: tuple[str, ...] = ()
    moment: bool = False
    """An RFC 3339 date and time."""
    base64: bool = False
    """Bytes, as JSON carries them."""


@dataclass(frozen=True, eq=False)
class Integer(Schema):
    """An integer of 32 or 64 bits; with 0 the schema does not say, and the servers' own 64 hold."""

    at_least: int | None = None
    at_most: int | None = None
    bits: int = field(default=32, kw_only=True)


@dataclass(frozen=True, eq=False)
class Boolean(Schema):
    """A boolean."""


@dataclass(frozen=True, eq=False)
class IntOrString(Schema):
    """A port by number or name."""


@dataclass(frozen=True, eq=False)
class Quantity(Schema):
    """An amount of a resource, as a number or as text such as `1500Mi`."""


@dataclass(frozen=True, eq=False)
class ListOf(Schema):
    """A list; `keys` are the fields by which its elements must differ, `distinct` is the same for elements that are scalars."""

    item: Schema = AnyValue()
    at_least: int = field(default=0, kw_only=True)
    at_most: int | None = field(default=None, kw_only=True)
    keys: tuple[str, ...] = field(default=(), kw_only=True)
    distinct: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, eq=False)
class MapOf(Schema):
    """Free keys, values of one schema."""

    value: Schema = String()
    atomic: bool = field(default=False, kw_only=True)
    """Owned and replaced as a whole by server-side apply."""


@dataclass(frozen=True, eq=False)
class Struct(Schema):
    """Named fields; anything else is unknown."""

    fields: dict[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    at_least_fields: int = field(default=0, kw_only=True)
    open: bool = field(default=False, kw_only=True)
    """Unknown fields are let through: a part of the API that we pass on without reading."""
    type_name: str = field(default="", kw_only=True)
    """How the servers call this type; their messages about values that cannot be read name it."""
    atomic: bool = field(default=False, kw_only=True)
    """Owned and replaced as a whole by server-side apply."""
    written: tuple[str, ...] = field(default=(), kw_only=True)
    """Optional fields that come back as an empty object when code rewrites the record."""


STRING, BOOLEAN, INT, LONG, PLAIN_INT = String(), Boolean(), Integer(), Integer(bits=64), Integer(bits=0)
QUANTITY, INT_OR_STRING, ANY_VALUE = Quantity(), IntOrString(), AnyValue()
STRINGS, STRING_MAP, QUANTITIES = ListOf(STRING), MapOf(STRING), MapOf(QUANTITY)
