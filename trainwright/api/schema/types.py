"""The types of which schemas are built, and rules that types cannot express.

Defaulting, pruning, strict decoding, validation and the CustomResourceDefinitions all derive from the same schemas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Rule:
    """A condition on one value: in CEL for a cluster, in Python for us.

    A transition rule has `keeps` instead of `holds`; it is checked only if there is a value before and after.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool] | None = None
    keeps: Callable[[Any, Any], bool] | None = None
    about: str = ""
    """The field that the rule is about, if it is defined on an enclosing object."""


@dataclass(frozen=True, eq=False)
class Schema:
    """The base of all types. `default` replaces an absent value."""

    default: Any = field(default=None, kw_only=True)
    rules: tuple[Rule, ...] = field(default=(), kw_only=True)
    retain_keys: bool = field(default=False, kw_only=True)
    """A strategic merge patch names the fields that remain: only one of them makes sense."""


@dataclass(frozen=True, eq=False)
class AnyValue(Schema):
    """Any value, not validated."""


@dataclass(frozen=True, eq=False)
class String(Schema):
    at_least: int = 0
    at_most: int | None = None
    pattern: str | None = None
    one_of: tuple[str, ...] = ()
    moment: bool = False
    """The value is an RFC 3339 date and time."""
    base64: bool = False
    """The value is base64."""


@dataclass(frozen=True, eq=False)
class Integer(Schema):
    """An integer of 32 or 64 bits; 0 if the schema has no format, which means 64."""

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
    """A list; `keys` are the fields that identify an element; `distinct` means that scalar elements are unique."""

    item: Schema = AnyValue()
    at_least: int = field(default=0, kw_only=True)
    at_most: int | None = field(default=None, kw_only=True)
    keys: tuple[str, ...] = field(default=(), kw_only=True)
    distinct: bool = field(default=False, kw_only=True)
    merge_key: str | None = field(default=None, kw_only=True)
    """The field by which a strategic merge patch finds elements; empty for a list of scalars that it extends, None for others."""


@dataclass(frozen=True, eq=False)
class MapOf(Schema):
    """A map with arbitrary keys and values of one schema."""

    value: Schema = String()
    atomic: bool = field(default=False, kw_only=True)
    """Owned and replaced as a whole by server-side apply."""


@dataclass(frozen=True, eq=False)
class Struct(Schema):
    """An object with named fields; others are unknown."""

    fields: dict[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    at_least_fields: int = field(default=0, kw_only=True)
    open: bool = field(default=False, kw_only=True)
    """Unknown fields are kept: for parts of the API that we do not read."""
    name: str = field(default="", kw_only=True)
    """The name in `types.json`."""
    atomic: bool = field(default=False, kw_only=True)
    """Owned and replaced as a whole by server-side apply."""
    written: tuple[str, ...] = field(default=(), kw_only=True)
    """Optional fields that encoding writes as an empty object."""

    @property
    def type_name(self) -> str:
        """The servers' name of this type in decoding errors."""
        return self.name.rpartition("/")[2]


STRING, BOOLEAN, INT, LONG, PLAIN_INT = String(), Boolean(), Integer(), Integer(bits=64), Integer(bits=0)
QUANTITY, INT_OR_STRING, ANY_VALUE = Quantity(), IntOrString(), AnyValue()
STRINGS, STRING_MAP, QUANTITIES = ListOf(STRING), MapOf(STRING), MapOf(QUANTITY)


def part_of(schema: Schema, name: str) -> Schema:
    """The schema of a field of a struct or of a value of a map."""
    if isinstance(schema, Struct):
        return schema.fields.get(name, ANY_VALUE)
    return schema.value if isinstance(schema, MapOf) else ANY_VALUE
