"""Rejects literal credentials in requests and manifests, since everyone with read access to TrainJobs could read them. Pure.

Messages never contain any part of a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj
from trainwright.jobs.credentials.credential_patterns import Literal, credential_kind, find_literals, without_templates

__all__ = [
    "LiteralSecret",
    "credential_kind",
    "literal_problems",
    "manifest_problems",
    "reject_known_literals",
    "reject_literals",
]
_ADVICE_FOR_ENV = (
    "store it in a Secret and reference it: {'%s': {'valueFrom': {'secretKeyRef': {'name': SECRET, 'key': KEY}}}} in %s"
)
_ADVICE_FOR_MANIFEST = "store it in a Secret, and reference it with valueFrom.secretKeyRef, or as $(VARIABLE)"
_ADVICE_FOR_TEXT = (
    "store it in a Secret or a connection; a program can get it as a variable, with valueFrom.secretKeyRef in env, and its arguments "
    "as $(VARIABLE)"
)
_ADVICE_FOR_STEP = "store it in a Secret and set %s to its name: its keys become variables of the initializer"
_ADVICE_FOR_LABELS = "labels and annotations are public; store it in a Secret"


class LiteralSecret(Invalid):
    """A request or a manifest contains literal credentials; the message names the fields, but no values."""


def reject_literals(fields: dict[str, Any]) -> None:
    """Check the fields of a request. Raises LiteralSecret."""
    problems = list(literal_problems(fields))
    if problems:
        raise LiteralSecret("; ".join(map(str, problems)), problems=problems)


def reject_known_literals(fields: dict[str, Any]) -> None:
    """Check what a pipeline or a DAG gives to a step, as far as it is known before a run. Raises LiteralSecret."""
    reject_literals(without_templates(fields))


def literal_problems(fields: dict[str, Any]) -> Iterator[Problem]:
    """Yield every field that contains a credential, at any depth."""
    for field, value in fields.items():
        for found in find_literals(field, value):
            yield _problem(found, _advice(field, found))


def manifest_problems(document: Obj) -> list[Problem]:
    """Return the literal credentials in a manifest of any kind, by field; none for a Secret, where they belong."""
    if document.get("kind") == "Secret":  # it is where credentials belong
        return []
    fields = {field: value for field, value in document.items() if field != "status"}
    return [_problem(found, _ADVICE_FOR_MANIFEST) for field, value in fields.items() for found in find_literals(field, value)]


def _advice(field: str, found: Literal) -> str:
    if found.variable:
        variables = found.path.removesuffix(f".{found.variable}")
        return _ADVICE_FOR_MANIFEST if field == "manifest" else _ADVICE_FOR_ENV % (found.variable, variables)
    if field in ("labels", "placement.annotations"):
        return _ADVICE_FOR_LABELS
    step = field.removesuffix("_uri")
    return _ADVICE_FOR_STEP % f"secrets.{step}_secret" if step in ("dataset", "model") else _ADVICE_FOR_TEXT


def _problem(found: Literal, advice: str) -> Problem:
    return Problem(found.path, f"looks like {found.what}; {advice}", "FieldValueForbidden")
