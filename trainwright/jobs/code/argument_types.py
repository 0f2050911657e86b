"""The type of a function's argument, as its annotation says it, and the conversion of values that an orchestrator passed as text.

Annotations are read from the source: the function is defined in the training pod only, where their names may mean something else.
Values become those of JSON: a date is ISO text, and a duration a number of seconds, which the launcher turns back in the pod.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Literal

Time = Literal["datetime", "date", "timedelta"]
Kind = Literal["bool", "int", "float", "str", "list", "dict", "none", "choice", "union", "any", "foreign"] | Time
_SIMPLE: dict[str, Kind] = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "str": "str",
    "list": "list",
    "List": "list",
    "tuple": "list",
    "Tuple": "list",
    "Sequence": "list",
    "MutableSequence": "list",
    "Iterable": "list",
    "Collection": "list",
    "dict": "dict",
    "Dict": "dict",
    "Mapping": "dict",
    "MutableMapping": "dict",
    "None": "none",
    "NoneType": "none",
    "datetime": "datetime",
    "date": "date",
    "timedelta": "timedelta",
}
_FOREIGN = frozenset(
    {
        *("set", "Set", "frozenset", "FrozenSet", "AbstractSet", "MutableSet", "bytes", "bytearray", "complex", "Decimal"),
        *("Fraction", "Path", "PurePath", "UUID", "time", "DateTime", "Timestamp"),
    }
)
"""Types that a value of JSON is none of. Any other name may be an alias of one that it is of."""
_TIMES: dict[Kind, type[Any]] = {"datetime": datetime, "date": date, "timedelta": timedelta}
_ONE_ENTRY = {"list", "List", "Sequence", "MutableSequence", "Iterable", "Collection"}
_TRUE, _FALSE, _NONE = ("true", "1", "1.0"), ("false", "0", "0.0"), ("none", "null")
_MAX_SHOWN = 80
_MAX_DEPTH = 100
_IN_WORDS = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "list": "a list",
    "dict": "an object",
    "none": "null",
    "datetime": "a date with its time, as 2026-01-31T12:00:00+00:00",
    "date": "a date without a time, as 2026-01-31",
    "timedelta": "a timedelta, or seconds",
}


@dataclass(frozen=True)
class ArgumentType:
    """A type. `entry` is that of the entries of a list or object, `members` those of a union, `choices` the values of a choice.

    One that JSON does not have is foreign, with its name as the only choice.
    """

    kind: Kind = "any"
    entry: ArgumentType | None = None
    members: tuple[ArgumentType, ...] = ()
    choices: tuple[Any, ...] = ()

    @property
    def accepts_none(self) -> bool:
        return self.kind in ("any", "none") or any(one.accepts_none for one in self.members) or None in self.choices

    @property
    def without_none(self) -> ArgumentType:
        """The only other member of an optional type, else the type itself."""
        others = [one for one in self.members if one.kind != "none"]
        return others[0] if len(others) == 1 else self

    @property
    def has_times(self) -> bool:
        """Whether values of it are or contain dates or durations."""
        return self.kind in _TIMES or any(one.has_times for one in (*self.members, *filter(None, [self.entry])))

    @property
    def foreign(self) -> str:
        """The name of the type that JSON does not have, at any depth; empty without one."""
        if self.kind == "foreign":
            return str(self.choices[0])
        return next((one.foreign for one in (*self.members, *filter(None, [self.entry])) if one.foreign), "")

    def __str__(self) -> str:
        if self.kind == "union":
            return " or ".join(str(one) for one in self.members)
        return "one of " + ", ".join(map(repr, self.choices)) if self.kind == "choice" else _IN_WORDS.get(self.kind, "any value")


ANY = ArgumentType()


def type_of_annotation(node: ast.expr | None) -> ArgumentType:
    """Return the type that an annotation says; any type for none, and for one that JSON values do not have."""
    if node is None:
        return ANY
    if isinstance(node, ast.Constant):
        return _type_of_constant(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union(type_of_annotation(node.left), type_of_annotation(node.right))
    if isinstance(node, ast.Subscript):
        return _type_of_subscript(_last_name(node.value), node.slice)
    return _type_of_name(_last_name(node))


def _type_of_name(name: str) -> ArgumentType:
    return ArgumentType("foreign", choices=(name,)) if name in _FOREIGN else ArgumentType(_SIMPLE.get(name, "any"))


def type_of_value(value: Any) -> ArgumentType:
    """Return the type of a value, such as a default; any type for None and for values that JSON does not have."""
    kinds: tuple[tuple[type, Kind], ...] = (
        (bool, "bool"),
        (int, "int"),
        (float, "float"),
        (str, "str"),
        (list, "list"),
        (tuple, "list"),
        (dict, "dict"),
    )
    return next((ArgumentType(kind) for known, kind in kinds if isinstance(value, known)), ANY)


def _type_of_constant(value: Any) -> ArgumentType:
    if value is None:
        return ArgumentType("none")
    if not isinstance(value, str):
        return ANY
    try:
        return type_of_annotation(ast.parse(value.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ANY


def _type_of_subscript(name: str, inner: ast.expr) -> ArgumentType:
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name == "Literal":
        return _choice(parts)
    if name == "Optional":
        return _union(type_of_annotation(inner), ArgumentType("none"))
    if name == "Union":
        return _union(*map(type_of_annotation, parts))
    if name in ("Annotated", "Required", "NotRequired", "Final"):
        return type_of_annotation(parts[0])
    found = _type_of_name(name)
    kind = found.kind
    if kind == "dict" and len(parts) == 2:
        return ArgumentType(kind, entry=type_of_annotation(parts[1]))
    is_of_one_type = name in _ONE_ENTRY or (len(parts) == 2 and isinstance(parts[1], ast.Constant) and parts[1].value is ...)
    return ArgumentType(kind, entry=type_of_annotation(parts[0])) if kind == "list" and is_of_one_type else found


def _choice(parts: list[ast.expr]) -> ArgumentType:
    try:
        return ArgumentType("choice", choices=tuple(ast.literal_eval(part) for part in parts))
    except ValueError:
        return ANY


def _union(*members: ArgumentType) -> ArgumentType:
    flat = dict.fromkeys(one for member in members for one in (member.members if member.kind == "union" else (member,)))
    others = [one for one in flat if one.kind != "none"]
    if len(others) > 1 and any(one.has_times for one in others):
        return ArgumentType("foreign", choices=("a date or a duration beside another type than None",))  # JSON has text for both
    if any(one.kind == "any" for one in flat):
        return ANY
    known = tuple(one for one in flat if not one.foreign)
    return ArgumentType("union", members=known if any(one.kind != "none" for one in known) else tuple(flat))


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def convert(value: Any, wanted: ArgumentType) -> Any:
    """Return the value as JSON has the wanted type: text is read, 4.0 is the integer 4, and entries of lists and objects too.

    Raises ValueError for a value that is not of the type, for text that is of several, and for types that JSON does not have.
    """
    if wanted.kind == "any":
        return _plain(value)
    if wanted.kind == "choice":
        return _chosen(value, wanted)
    if wanted.kind == "union":
        return _of_one_member(value, wanted)
    converted = _from_text(value, wanted) if isinstance(value, str) else _from_value(value, wanted)
    return _with_entries(converted, wanted.entry or ANY)


def times_of_type(wanted: ArgumentType) -> Any:
    """Return the type of `datetime` that a value becomes in the pod, in a list for each entry of it; None for other types."""
    wanted = wanted.without_none
    if wanted.entry is None or not wanted.has_times:
        return wanted.kind if wanted.kind in _TIMES else None
    return [times_of_type(wanted.entry)]


def reads_as_another_type(text: str) -> bool:
    """Whether text may be a number, a boolean, null, a list or an object that an orchestrator passed as text."""
    text = text.strip()
    if text.lower() in ("true", "false", *_NONE):
        return True
    return _is_number(text) or not isinstance(_structure(text), str | None)


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value of any type that JSON has."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"more than {_MAX_DEPTH} levels deep")
    if isinstance(value, Mapping) or _is_list(value):
        return _with_entries(value, ANY, depth + 1)
    if isinstance(value, date | timedelta):
        name = next(name for name, one in _TIMES.items() if isinstance(value, one))
        raise ValueError(f"got a {name} where no annotation says so: annotate it as {name}, list[{name}] or dict[str, {name}]")
    if value is not None and not isinstance(value, str | int | float):
        raise ValueError(f"JSON has no type {type(value).__name__}; pass numbers, text, lists or dicts")
    return value


def _with_entries(value: Any, wanted: ArgumentType, depth: int = 0) -> Any:
    """Return a list or an object with its entries converted; anything else as it is."""
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise ValueError(f"the key {_shown(odd[0])} is not text, as in JSON; pass a list of pairs")
        return {key: _entry(one, wanted, key, depth) for key, one in value.items()}
    return [_entry(one, wanted, at, depth) for at, one in enumerate(value)] if _is_list(value) else value


def _is_list(value: Any) -> bool:
    """Whether a value is a list, a tuple, or what Airflow has for the results of a mapped task."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)


def _entry(value: Any, wanted: ArgumentType, position: str | int, depth: int) -> Any:
    try:
        return _plain(value, depth) if wanted.kind == "any" else convert(value, wanted)
    except ValueError as error:
        raise ValueError(f"[{position!r}]: {error}") from None


def _chosen(value: Any, wanted: ArgumentType) -> Any:
    for choice in wanted.choices:
        if type(value) is type(choice) and value == choice:
            return value
    for choice in wanted.choices:
        try:
            if convert(value, type_of_value(choice)) == choice and choice is not None:
                return choice
        except ValueError:
            continue
    raise _unfit(value, wanted)


def _of_one_member(value: Any, wanted: ArgumentType) -> Any:
    if value is None and wanted.accepts_none:
        return None
    found: list[Any] = []
    for member in wanted.members:
        try:
            found.append(convert(value, member))
        except ValueError:
            continue
    if not found:
        raise _unfit(value, wanted)
    if not isinstance(value, str):
        return next((one for one in found if type(one) is type(value)), found[0])
    if any(one != found[0] or isinstance(one, bool) != isinstance(found[0], bool) for one in found):
        raise ValueError(f"{_shown(value)} is ambiguous: it may be {wanted}")
    return found[0]


def _from_value(value: Any, wanted: ArgumentType) -> Any:
    kind = wanted.kind
    if kind in _TIMES and isinstance(value, date | timedelta):
        if isinstance(value, _TIMES[kind]) and isinstance(value, datetime) == (kind == "datetime"):
            return value.total_seconds() if isinstance(value, timedelta) else type(value).isoformat(value)
    elif isinstance(value, bool):
        if kind == "bool":
            return value
    elif isinstance(value, int | float):
        if kind == "float":
            return float(value)
        if kind == "int" and (isinstance(value, int) or (math.isfinite(value) and value.is_integer())):
            return int(value)
        if kind == "bool" and value in (0, 1):
            return bool(value)
        if kind == "timedelta":
            return _seconds(value, wanted)
    elif value is None:
        if kind == "none":
            return None
    elif kind == "list" and _is_list(value):
        return list(value)
    elif kind == "dict" and isinstance(value, dict):
        return value
    raise _unfit(value, wanted)


def _from_text(text: str, wanted: ArgumentType) -> Any:
    kind, word = wanted.kind, text.strip().lower()
    if kind == "str":
        return text
    if kind == "bool" and word in (*_TRUE, *_FALSE):
        return word in _TRUE
    if kind == "none" and word in ("", *_NONE):
        return None
    if kind in ("int", "float", "timedelta") and _is_number(word):
        return _integer(text, wanted) if kind == "int" else float(word) if kind == "float" else _seconds(float(word), wanted)
    if kind in ("datetime", "date"):
        return _date(text.strip(), wanted)
    if kind in ("list", "dict"):
        found = _structure(text)
        if isinstance(found, tuple):
            found = list(found)
        if isinstance(found, list if kind == "list" else dict):
            return found
    raise _unfit(text, wanted)


def _date(text: str, wanted: ArgumentType) -> str:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if (day is not None) != (wanted.kind == "date"):  # midnight is not meant by a date alone, nor the day alone by its time
        raise _unfit(text, wanted)
    try:
        return day.isoformat() if day is not None else datetime.fromisoformat(text).isoformat()
    except ValueError:
        raise _unfit(text, wanted) from None


def _seconds(value: float, wanted: ArgumentType) -> float:
    try:
        return timedelta(seconds=value).total_seconds()
    except (ValueError, OverflowError):  # not finite, or more than a timedelta has
        raise _unfit(value, wanted) from None


def _integer(text: str, wanted: ArgumentType) -> int:
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if not number.is_integer():
        raise _unfit(text, wanted)
    return int(number)


def _is_number(text: str) -> bool:
    """Whether the text is a finite number. Python's own forms of numbers with `_` are text."""
    try:
        return "_" not in text and math.isfinite(float(text))
    except (ValueError, OverflowError):
        return False


def _structure(text: str) -> Any:
    """Return a list or object, written as JSON or, as by a template of Airflow, as Python; None for other text."""
    if text.strip()[:1] not in ("[", "{", "("):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _unfit(value: Any, wanted: ArgumentType) -> ValueError:
    return ValueError(f"expected {wanted}, got {_shown(value)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
