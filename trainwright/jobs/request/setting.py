"""Settings: each is declared once, as a field of a class with its type, default, description, unit, example and place.

The classes are dataclasses and import nothing heavy. pydantic validates them at the door (`Settings.parse`), where values come in as
people and orchestrators write them: JSON text, texts for numbers, empty texts. Inside, values are typed, and know which were given.
Signatures, docstrings, options, forms and reference pages are written from `settings_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.text.suggest import suggest

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema

Kind = Literal["text", "integer", "number", "seconds", "flag", "object", "list", "function", "manifest", "group"]
Place = Literal["", "uri", "inside", "here"]
"""What a setting says of places: the URI of one, a structure with URIs, claims or paths in it, or what is read here, where the request
is made: files of this machine, and repositories, with the credentials of this process."""
S = TypeVar("S", bound="Settings")
F = TypeVar("F", bound=Callable[..., Any])
_SIMPLE: dict[type, Kind] = {str: "text", bool: "flag", int: "integer", float: "number"}
_MAX_NAME = 80


def _once(function: F) -> F:
    """Compute a result once for each class; mypy takes no class of dataclasses for an argument of `functools.cache`."""
    return cast(F, cache(function))


class _Required:
    """Stands for a setting without a value, in settings that are not whole yet."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


class Setting(NamedTuple):
    """A setting, as it is declared. `default` is ... if it is required, `choices` are the only texts that it may have.

    `section` is where a form or a page shows it. A `group` is an object with settings of its class, `of`.
    """

    name: str
    kind: Kind
    default: Any
    section: str
    description: str
    choices: tuple[str, ...] = ()
    unit: str = ""
    example: str = ""
    place: Place = ""
    of: type[Settings] | None = None
    has_texts: bool = False
    """Whether the entries of the list or object are text: there, an integer is written as one, "7" and not "7.0"."""


@dataclass(frozen=True)
class Form:
    """How people write a value: its kind, and a function that reads it. Then pydantic checks its type, unless `is_parsed`: the
    function returns an object of ours. With `has_context` it takes pydantic's `ValidationInfo`, too. `has_texts` is of `Setting`.
    """

    kind: Kind
    read: Callable[..., Any] | None = None
    is_parsed: bool = False
    has_context: bool = False
    has_texts: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        if self.is_parsed and self.read is not None:
            return core_schema.no_info_plain_validator_function(self.read)
        schema = handler(source)
        if self.kind == "group":  # not a method of the group: pydantic calls one only where it meets the class first
            schema = core_schema.no_info_wrap_validator_function(source.read, schema)
        if self.read is None:
            return schema
        if self.has_context:
            return core_schema.with_info_before_validator_function(self.read, schema)
        return core_schema.no_info_before_validator_function(self.read, schema)


@dataclass(frozen=True)
class Check:
    """A check of a typed value: a function that returns it, or raises ValueError."""

    check: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.check, handler(source))


def setting(
    description: str,
    default: Any = REQUIRED,
    *,
    section: str = "",
    unit: str = "",
    example: str = "",
    place: Place = "",
) -> Any:
    """Declare a setting, as a field of a `Settings` class; required without a `default`."""
    said = {"description": description, "section": section, "unit": unit, "example": example, "place": place}
    about = {"about": said}
    if isinstance(default, dict | list | Settings):
        return field(default_factory=default.copy if isinstance(default, dict | list) else type(default), metadata=about)
    return field(default=default, metadata=about)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The base of all groups and requests. Instances are values: whoever changes one makes another, with `replace`."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "revalidate_instances": "always", "hide_input_in_errors": True}

    @classmethod
    def parse(
        cls, values: Mapping[str, Any] | Self, *, rest: Self | None = None, context: Mapping[str, Any] | None = None
    ) -> Self:
        """Return typed values that fit together, from what a person or an orchestrator has written, or from an instance.

        `rest` are settings that came another way; none may be given twice, with different values.
        Raises InvalidSettings with all problems, without any value that may be a credential; LiteralSecret.
        """
        found = cls.parse_some(values, context=context)
        return (found if rest is None else rest.joined(found)).checked()

    @classmethod
    def parse_some(cls, values: Mapping[str, Any] | Self, *, context: Mapping[str, Any] | None = None) -> Self:
        """As `parse`, for settings that others complete: whether they fit together is not checked yet."""
        from pydantic import ValidationError

        from trainwright.jobs.request.invalid_settings import problems_in_words

        try:
            found: Self = _adapter(cls).validate_python(values, context=dict(context or {}))
        except ValidationError as error:
            raise InvalidSettings(problems_in_words(error)) from None
        return found

    def checked(self) -> Self:
        """Return the settings if they fit together. Raises InvalidSettings."""
        if missing := [one.name for one in fields(self) if getattr(self, one.name) is REQUIRED]:
            raise InvalidSettings([(name, "required") for name in missing])
        if found := list(self.problems()):
            raise InvalidSettings([_as_problem(problem) for problem in found])
        return self

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the settings together, each beginning with the path of one of them."""
        yield from ()

    @property
    def given(self) -> frozenset[str]:
        """The settings that somebody has given; of an instance that was made by hand, those that differ from their defaults."""
        noted: frozenset[str] = self.__dict__.get("_given", frozenset())
        return noted | {one.name for one in fields(self) if getattr(self, one.name) != _default_of(one)}

    def joined(self, other: Self, *, path: str = "") -> Self:
        """Return these settings with those that `other` was given; groups are joined, too. Raises InvalidSettings for one that
        both were given, with other values."""
        changes: dict[str, Any] = {}
        for name in sorted(other.given):
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, Settings):
                changes[name] = mine.joined(theirs, path=f"{path}{name}.")
            elif name in self.given and mine != theirs:
                raise InvalidSettings([(f"{path}{name}", "given twice, with different values; give it once")])
            else:
                changes[name] = theirs
        return self.having(**changes)

    def over(self, base: Self) -> Self:
        """Return these settings, with those that `base` was given and these were not; so within groups."""
        changes: dict[str, Any] = {}
        for name in base.given:
            mine, theirs = getattr(self, name), getattr(base, name)
            if isinstance(mine, Settings):
                changes[name] = mine.over(theirs)
            elif name not in self.given:
                changes[name] = theirs
        return self.having(**changes)

    def only(self, *names: str) -> Self:
        """Return those of these settings that were given, and no others."""
        return type(self)().having(**{name: getattr(self, name) for name in names if name in self.given})

    def having(self, **changes: Any) -> Self:
        """Return these settings with other values, which count as given. Values must have the types of the settings."""
        return noting(replace(self, **changes), self.given | frozenset(changes))

    def by_name(self, *names: str) -> dict[str, Any]:
        """Return these settings, or all, by name: the keywords of a function that takes them."""
        return {name: getattr(self, name) for name in names or sorted(names_of(type(self)))}

    def given_values(self) -> dict[str, Any]:
        """Return the settings that were given as JSON has them, groups as objects: for another process, which parses them."""
        return {name: _as_json(getattr(self, name)) for name in sorted(self.given)}

    @classmethod
    def before(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Look at the values before anything else does. Raises LiteralSecret in a class whose settings may have credentials."""
        return values

    @classmethod
    def read(cls, value: Any, validate: Callable[[Any], Self]) -> Self:
        """Refuse unknown names with the nearest one, and note which were given."""
        if isinstance(value, Settings):  # made by hand, or by another door: validated again
            value = value.given_values()
        if not isinstance(value, Mapping):
            raise ValueError("expected an object with settings by name")
        named = {str(name): entry for name, entry in value.items() if entry is not None}
        named = {name: entry for name, entry in named.items() if entry != "" or name not in _not_texts(cls)}
        check_names(cls, named)
        named = cls.before(named)
        return noting(validate(named), frozenset(named))


@_once
def names_of(cls: type[Settings]) -> frozenset[str]:
    """Return the names of the settings of a class."""
    return frozenset(one.name for one in fields(cls))


def check_names(cls: type[Settings], values: Mapping[str, Any]) -> None:
    """Check that a class has settings of these names, and that none in a group is one of elsewhere.

    Raises InvalidSettings with the nearest one, or its path.
    """
    paths, problems = paths_of(cls), []
    for name, value in values.items():
        group = settings_of(cls)[name].of if name in names_of(cls) else None
        if name not in names_of(cls):
            about = f"it is {paths[name]}" if name in paths else suggest(name, paths)
            problems.append((name[:_MAX_NAME], f"unknown; {about}"))
        elif group is not None and isinstance(value, Mapping):
            elsewhere = [each for each in value if each not in names_of(group) and each in paths]
            problems += [(f"{name}.{each}", f"unknown; it is {paths[each]}") for each in elsewhere]
    if problems:
        raise InvalidSettings(problems)


@_once
def _not_texts(cls: type[Settings]) -> frozenset[str]:
    """Return the settings of which an empty text, such as a template rendered it, says nothing."""
    return frozenset(name for name, one in settings_of(cls).items() if one.kind != "text" or one.choices)


@_once
def settings_of(cls: type[Settings]) -> dict[str, Setting]:
    """Return the settings of a class by name, in their order."""
    hints = get_type_hints(cls, include_extras=True)
    return {one.name: _setting_of(one, hints[one.name]) for one in fields(cls)}


def paths_of(cls: type[Settings]) -> dict[str, str]:
    """Return the path of each setting by name: `limits.restarts` for `restarts`. No two groups have settings of one name."""
    found: dict[str, str] = {}
    for name, one in settings_of(cls).items():
        found |= {each: f"{name}.{each}" for each in settings_of(one.of)} if one.of is not None else {name: name}
    return found


def options_of(cls: type[Settings]) -> dict[str, Setting]:
    """Return all settings by name, those of groups in the section of their group: as options of a command line."""
    found: dict[str, Setting] = {}
    for name, one in settings_of(cls).items():
        if one.of is None:
            found[name] = one
        else:
            found |= {inner: each._replace(section=name) for inner, each in settings_of(one.of).items()}
    return found


def in_groups(cls: type[Settings], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by name with those of groups in objects, as `parse` takes them: an option has no path."""
    found: dict[str, Any] = {}
    paths = paths_of(cls)
    for name, value in values.items():
        group, dot, _ = paths.get(name, name).partition(".")
        if dot:
            found[group] = {**(found.get(group) or {}), name: value}
        else:
            found[name] = value
    return found


def _as_problem(text: str) -> tuple[str, str]:
    path, colon, message = text.partition(": ")
    return (path, message) if colon else ("", text)


def noting(instance: S, given: frozenset[str]) -> S:
    """Return the instance, which knows now that these settings were given."""
    object.__setattr__(instance, "_given", given)
    return instance


def _default_of(one: Field[Any]) -> Any:
    return one.default_factory() if one.default_factory is not MISSING else one.default


def _as_json(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.given_values()
    if hasattr(value, "as_json"):
        return value.as_json()
    return str(value) if is_dataclass(value) else value


def _setting_of(one: Field[Any], hint: Any) -> Setting:
    default, form = _default_of(one), _form_of(hint)
    return Setting(
        one.name,
        form.kind if form is not None else _kind_of(_inner(hint)),
        ... if default is REQUIRED else default,
        **one.metadata["about"],
        choices=get_args(_inner(hint)) if get_origin(_inner(hint)) is Literal else (),
        of=_inner(hint) if isinstance(_inner(hint), type) and issubclass(_inner(hint), Settings) else None,
        has_texts=form is not None and form.has_texts,
    )


def _form_of(hint: Any) -> Form | None:
    """Return the outermost form of a type."""
    return next((each for each in reversed(getattr(hint, "__metadata__", ())) if isinstance(each, Form)), None)


def _inner(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _kind_of(hint: Any) -> Kind:
    return "text" if get_origin(hint) is Literal else _SIMPLE.get(hint, "object")


@_once
def _adapter(cls: type[S]) -> TypeAdapter[S]:
    from pydantic import TypeAdapter

    return TypeAdapter(cast(Any, Annotated[cls, Form("group")]))
