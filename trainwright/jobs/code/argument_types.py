"""The type of a function's argument, as its annotation says it, and the conversion of values that an orchestrator passed as text.

Annotations are read from the source: the function is defined in the training pod only, where their names may mean something else.
"""

from __future__ import annotations

import ast
import json
import math
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["bool", "int", "float", "str", "list", "dict", "none", "choice", "union", "any"]
_SIMPLE: dict[str, Kind] = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "str": "str",
    "list": "list",
    "List": "list",
    "tuple": "list",
    "Tuple": "list",
    "set": "list",
    "Set": "list",
    "frozenset": "list",
    "FrozenSet": "list",
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
}
_ONE_ENTRY = {"list", "List", "set", "Set", "frozenset", "FrozenSet", "Sequence", "MutableSequence", "Iterable", "Collection"}
_TRUE, _FALSE, _NONE = ("true", "1", "1.0"), ("false", "0", "0.0"), ("none", "null")
_MAX_SHOWN = 80
_IN_WORDS = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "list": "a list",
    "dict": "an object",
    "none": "null",
}


@dataclass(frozen=True)
class ArgumentType:
    """A type. `entry` is that of the entries of a list or object, `members` those of a union, `choices` the values of a choice."""

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
    return ArgumentType(_SIMPLE.get(_last_name(node), "any"))


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
    kind = _SIMPLE.get(name, "any")
    if kind == "dict" and len(parts) == 2:
        return ArgumentType(kind, entry=type_of_annotation(parts[1]))
    is_of_one_type = name in _ONE_ENTRY or (len(parts) == 2 and isinstance(parts[1], ast.Constant) and parts[1].value is ...)
    return ArgumentType(kind, entry=type_of_annotation(parts[0])) if kind == "list" and is_of_one_type else ArgumentType(kind)


def _choice(parts: list[ast.expr]) -> ArgumentType:
    try:
        return ArgumentType("choice", choices=tuple(ast.literal_eval(part) for part in parts))
    except ValueError:
        return ANY


def _union(*members: ArgumentType) -> ArgumentType:
    flat = tuple(one for member in members for one in (member.members if member.kind == "union" else (member,)))
    return ANY if any(one.kind == "any" for one in flat) else ArgumentType("union", members=tuple(dict.fromkeys(flat)))


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def convert(value: Any, wanted: ArgumentType) -> Any:
    """Return the value as the wanted type: text is read, 4.0 is the integer 4, and entries of lists and objects are converted too.

    Raises ValueError for a value that is not of the type, and for text that is of several.
    """
    if wanted.kind == "any":
        return value
    if wanted.kind == "choice":
        return _chosen(value, wanted)
    if wanted.kind == "union":
        return _of_one_member(value, wanted)
    converted = _from_text(value, wanted) if isinstance(value, str) else _from_value(value, wanted)
    if wanted.entry is None:
        return converted
    if isinstance(converted, dict):
        return {key: _entry(one, wanted.entry, key) for key, one in converted.items()}
    return [_entry(one, wanted.entry, index) for index, one in enumerate(converted)]


def reads_as_another_type(text: str) -> bool:
    """Whether text may be a number, a boolean, null, a list or an object that an orchestrator passed as text."""
    text = text.strip()
    if text.lower() in ("true", "false", *_NONE):
        return True
    return _is_number(text) or not isinstance(_structure(text), str | None)


def _entry(value: Any, wanted: ArgumentType, position: str | int) -> Any:
    try:
        return convert(value, wanted)
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
    if isinstance(value, bool):
        if kind == "bool":
            return value
    elif isinstance(value, int | float):
        if kind == "float":
            return float(value)
        if kind == "int" and (isinstance(value, int) or (math.isfinite(value) and value.is_integer())):
            return int(value)
        if kind == "bool" and value in (0, 1):
            return bool(value)
    elif value is None:
        if kind == "none":
            return None
    elif kind == "list" and isinstance(value, list | tuple):
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
    if kind in ("int", "float") and _is_number(word):
        return _integer(text, wanted) if kind == "int" else float(word)
    if kind in ("list", "dict"):
        found = _structure(text)
        if isinstance(found, tuple):
            found = list(found)
        if isinstance(found, list if kind == "list" else dict):
            return found
    raise _unfit(text, wanted)


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
