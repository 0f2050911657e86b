"""Label and field selectors: from the text of a request to a predicate on objects.

Grammar of label selectors: `a=b`, `a==b`, `a!=b`, `a in (x,y)`, `a notin (x,y)`, `a`, `!a`, joined by commas.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj, labels_of
from trainwright.api.selectors.label_selectors import requirements

Selector = Callable[[Obj], bool]


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


def field_selector(text: str) -> Selector:
    """Return the predicate of a field selector; a missing field has an empty value."""
    terms = field_terms(text)
    return lambda obj: all((str(_at(obj, path)) == value) is equal for path, value, equal in terms)


def _at(obj: Obj, path: str) -> object:
    value: object = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None else value


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
