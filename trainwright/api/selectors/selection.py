"""Label and field selectors: from the text of a request to a predicate on objects.

Grammar of label selectors: `a=b`, `a==b`, `a!=b`, `a in (x,y)`, `a notin (x,y)`, `a>1`, `a`, `!a`, joined by commas. Their parser is a
recursive descent with one token of look-ahead; error messages are those of the API server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj, labels_of
from trainwright.api.paths import value_at
from trainwright.api.rules.metadata import key_faults, label_value_fault

Selector = Callable[[Obj], bool]
_TOKEN = re.compile(r"(==|!=|[=!(),<>]|[^\s=!(),<>]+)")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_SYMBOLS = ("==", "!=", "=", "!", "(", ")", ",", "<", ">")
_BINARY = {"in", "notin", "=", "==", "!=", ">", "<"}
_EXPECTED_OPERATORS = "in, notin, =, ==, !=, gt, lt"
Condition = Callable[[dict[str, str]], bool]


def label_selector(text: str) -> Selector:
    """Return the predicate of a label selector; an empty one selects everything.

    Raises BadRequest if it cannot be parsed.
    """
    return labels_matching([requirement.holds for requirement in requirements(text)])


def match_labels(selector: Obj | None) -> Selector:
    """Return the predicate of a LabelSelector object (`matchLabels`, `matchExpressions`)."""
    selector = selector or {}
    requirements = [_in(key, {value}) for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or []:
        key, operator, values = expression["key"], expression["operator"], set(expression.get("values") or [])
        requirements.append(_expression(key, operator, values))
    return labels_matching(requirements)


def labels_matching(requirements: list[Callable[[dict[str, str]], bool]]) -> Selector:
    return lambda obj: all(requirement(labels_of(obj)) for requirement in requirements)


def field_terms(text: str) -> list[tuple[str, str, bool]]:
    """Return the terms of a field selector as `(path, value, equal)`.

    Raises BadRequest if a term is neither `path=value` nor `path!=value`.
    """
    terms = []
    for term in filter(None, (part.strip() for part in text.split(","))):
        match = re.match(r"^([A-Za-z][A-Za-z0-9.]*)(==|=|!=)(.*)$", term)
        if not match:
            raise BadRequest(f"invalid field selector {term!r}: expected path=value or path!=value")
        terms.append((match[1], match[3], match[2] != "!="))
    return terms


def field_selector(text: str, derived: Mapping[str, Callable[[Obj], str]] = MappingProxyType({})) -> Selector:
    """Return the predicate of a field selector; a missing field has an empty value, unless its value is derived from others."""
    terms = [(derived.get(path) or partial(_text_at, path), value, equal) for path, value, equal in field_terms(text)]
    return lambda obj: all((read(obj) == value) is equal for read, value, equal in terms)


def _text_at(path: str, obj: Obj) -> str:
    value = value_at(obj, path)
    return "" if value is None else str(value)


def _expression(key: str, operator: str, values: set[str]) -> Callable[[dict[str, str]], bool]:
    if operator == "In":
        return _in(key, values)
    if operator == "NotIn":
        return lambda labels: labels.get(key) not in values
    if operator in ("Exists", "DoesNotExist"):
        return lambda labels: (key in labels) is (operator == "Exists")
    raise BadRequest(f"{operator!r} is not a valid label selector operator")


def _in(key: str, values: set[str]) -> Callable[[dict[str, str]], bool]:
    return lambda labels: key in labels and labels[key] in values


@dataclass(frozen=True)
class Requirement:
    """One requirement: a key, an operator (also `exists` and `!`), and its values."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: dict[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "in" | "=" | "==":
                return value is not None and value in self.values
            case "notin" | "!=":
                return value not in self.values
        if value is None or not _WHOLE.fullmatch(value):
            return False
        return int(value) > int(self.values[0]) if self.operator == ">" else int(value) < int(self.values[0])


def requirements(text: str) -> list[Requirement]:
    """The requirements of a selector; an empty list selects everything. Raises BadRequest."""
    words = _Words(_TOKEN.findall(text))
    found: list[Requirement] = []
    while True:
        word = words.next
        if word == "":
            return found
        if word != "!" and word in _SYMBOLS:
            raise BadRequest(f"found '{word}', expected: !, identifier, or 'end of string'")
        try:
            found.append(_requirement(words))
        except ValueError as error:
            raise BadRequest(f"unable to parse requirement: {error}") from None
        end = words.take()
        if end == "":
            return found
        if end != ",":
            raise BadRequest(f"found '{end}', expected: ',' or 'end of string'")
        if words.next in ("", *_SYMBOLS) and words.next != "!":
            raise BadRequest(f"found '{words.next}', expected: identifier after ','")


class _Words:
    """The tokens of a selector; an empty token is the end."""

    def __init__(self, words: list[str]):
        self._words = words
        self._at = 0

    @property
    def next(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def take(self) -> str:
        word = self.next
        self._at += 1
        return word


def _requirement(words: _Words) -> Requirement:
    negated = words.next == "!"
    if negated:
        words.take()
    key = words.take()
    if key in ("", *_SYMBOLS):
        raise ValueError(f"found '{key}', expected: identifier")
    for fault in key_faults(key):
        raise ValueError(f'<nil>: Invalid value: "{key}": {fault}')
    if negated or words.next in ("", ","):
        return Requirement(key, "!" if negated else "exists")
    operator = words.take()
    if operator not in _BINARY:
        raise ValueError(f"found '{operator}', expected: {_EXPECTED_OPERATORS}")
    values = _set(words) if operator in ("in", "notin") else [_value(words)]
    for index, value in enumerate(values):
        _check(key, operator, index, value)
    return Requirement(key, operator, tuple(values))


def _check(key: str, operator: str, index: int, value: str) -> None:
    shown = value.replace("\\", "\\\\").replace('"', '\\"')
    if operator in ("<", ">") and not _WHOLE.fullmatch(value):
        why = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise ValueError(f'values[{index}]: Invalid value: "{shown}": {why}')
    if fault := label_value_fault(value):
        raise ValueError(f'values[{index}][{key}]: Invalid value: "{shown}": {fault}')


def _value(words: _Words) -> str:
    if words.next in ("", ","):
        return ""
    word = words.take()
    if word in _SYMBOLS:
        raise ValueError(f"found '{word}', expected: identifier")
    return word


def _set(words: _Words) -> list[str]:
    opening = words.take()
    if opening != "(":
        raise ValueError(f"found '{opening}' expected: '('")
    values: list[str] = []
    wanted = True
    while True:
        word = words.take()
        if word == ")":
            return [*values, ""] if wanted else values
        if word == ",":
            values += [""] if wanted else []
            wanted = True
        elif word in ("", *_SYMBOLS):
            raise ValueError(f"found '{word}', expected: ',', ')' or identifier")
        elif not wanted:
            raise ValueError(f"found '{word}', expected: ',' or ')'")
        else:
            values.append(word)
            wanted = False
