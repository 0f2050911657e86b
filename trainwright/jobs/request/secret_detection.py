"""Literals that look like credentials: refused, since whoever may read a TrainJob would read them. Pure.

A value is judged by its form, or by the name of the variable that holds it. No message repeats any part of a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainwright.api.errors import Invalid, Problem

_FORMS = (
    ("a Hugging Face token", r"\bhf_[A-Za-z0-9]{20,}"),
    ("an AWS access key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("a GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,})"),
    ("a GitLab token", r"\bglpat-[A-Za-z0-9_-]{20,}"),
    ("a Slack token", r"\bxox[abeprs]-[A-Za-z0-9-]{10,}"),
    ("a Google API key", r"\bAIza[A-Za-z0-9_-]{35}"),
    ("an API key", r"\bsk-(?:[a-z]+-)*[A-Za-z0-9_]{20,}"),
    ("a JSON web token", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    ("a private key", r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    ("a URI with a password", r"[A-Za-z][A-Za-z0-9+.-]{0,40}://[^/\s:@?#]*:(?!\$[({]|\*+@)[^/\s@?#]+@"),
    ("a signed URI", r"[?&](?:sig|X-Amz-Signature|X-Goog-Signature)=[^&\s]{16,}"),
)
_FORM = tuple((what, re.compile(pattern)) for what, pattern in _FORMS)
_NAMED = re.compile(
    r"(?:^|_)(?:PASSWORD|PASSWD|API_KEY|API_TOKEN|ACCESS_TOKEN|HF_TOKEN|HUB_TOKEN|GITHUB_TOKEN|SECRET_ACCESS_KEY|SESSION_TOKEN"
    r"|CLIENT_SECRET|PRIVATE_KEY|TRACKING_TOKEN|STORAGE_KEY|ACCOUNT_KEY)$",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"\$[({][A-Za-z_][A-Za-z0-9_]*[)}]|\*+|")
"""Stands for a value and is none: `$(VARIABLE)`, asterisks, nothing."""
_RIGHT_FOR_ENV = (
    "keep it in a Secret and refer to it: {'%s': {'valueFrom': {'secretKeyRef': {'name': SECRET, 'key': KEY}}}} in %s"
)
_RIGHT_FOR_TEXT = (
    "keep it in a Secret, give the program a variable with valueFrom.secretKeyRef in env, and write $(VARIABLE) here"
)
_RIGHT_FOR_STEP = "keep it in a Secret and name that in %s: its keys become variables of the initializer"


class LiteralSecret(Invalid):
    """A request holds what looks like a credential; every such field is named, no value is."""


def looks_like(text: str) -> str | None:
    """What kind of credential a text holds, in words; None for most."""
    return next((what for what, pattern in _FORM if pattern.search(text)), None)


def refuse_literals(fields: dict[str, Any]) -> None:
    """Look at the fields of a request. Raises LiteralSecret."""
    problems = list(literal_problems(fields))
    if problems:
        raise LiteralSecret("; ".join(map(str, problems)), problems=problems)


def literal_problems(fields: dict[str, Any]) -> Iterator[Problem]:
    """Every field, at any depth, that holds one."""
    for field, value in fields.items():
        if field in ("env", "dataset_env", "model_env") and isinstance(value, dict):
            yield from _in_variables(field, value)
        elif isinstance(value, str):
            if what := looks_like(value):
                yield _problem(field, what, _right_for(field))
        elif field in ("labels", "annotations"):
            yield from _nested(field, value, "labels and annotations are for everybody to read")
        else:
            yield from _nested(field, value, _RIGHT_FOR_TEXT)


def _nested(path: str, value: Any, right: str) -> Iterator[Problem]:
    """Texts in lists and objects; a variable as a container has it (name and value) is judged by its name as well."""
    if isinstance(value, str):
        if what := looks_like(value):
            yield _problem(path, what, right)
    elif isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(value.get("value"), str):
        yield from _in_variables(path, {value["name"]: value["value"]})
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _nested(f"{path}.{key}", item, right)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _nested(f"{path}[{index}]", item, right)


def _in_variables(field: str, variables: dict[str, Any]) -> Iterator[Problem]:
    for name, value in variables.items():
        if not isinstance(value, str):
            yield from _nested(f"{field}.{name}", value, _RIGHT_FOR_TEXT)
            continue
        what = looks_like(value)
        if what is None and _NAMED.search(name) and not _REFERENCE.fullmatch(value):
            what = "a credential, by its name"
        if what:
            yield _problem(f"{field}.{name}", what, _RIGHT_FOR_ENV % (name, field))


def _right_for(field: str) -> str:
    step = field.removesuffix("_uri")
    return _RIGHT_FOR_STEP % f"{step}_secret" if step in ("dataset", "model") else _RIGHT_FOR_TEXT


def _problem(field: str, what: str, right: str) -> Problem:
    return Problem(field, f"holds what looks like {what}; {right}", "FieldValueForbidden")
