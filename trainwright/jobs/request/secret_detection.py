"""Rejects literal credentials in requests, since everyone with read access to TrainJobs could read them. Pure.

A value is recognised by its format, or by the name of its variable. Messages never contain any part of a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainwright.api.errors import Invalid, Problem

_PATTERNS = (
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
_COMPILED_PATTERNS = tuple((what, re.compile(pattern)) for what, pattern in _PATTERNS)
_CREDENTIAL_NAMES = re.compile(
    r"(?:^|_)(?:PASSWORD|PASSWD|API_KEY|API_TOKEN|ACCESS_TOKEN|HF_TOKEN|HUB_TOKEN|GITHUB_TOKEN|SECRET_ACCESS_KEY|SESSION_TOKEN"
    r"|CLIENT_SECRET|PRIVATE_KEY|TRACKING_TOKEN|STORAGE_KEY|ACCOUNT_KEY)$",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"\$[({][A-Za-z_][A-Za-z0-9_]*[)}]|\*+|")
"""Placeholders, which are not credentials: `$(VARIABLE)`, asterisks, an empty text."""
_ADVICE_FOR_ENV = (
    "store it in a Secret and reference it: {'%s': {'valueFrom': {'secretKeyRef': {'name': SECRET, 'key': KEY}}}} in %s"
)
_ADVICE_FOR_TEXT = "store it in a Secret, set a variable with valueFrom.secretKeyRef in env, and use $(VARIABLE) here"
_ADVICE_FOR_STEP = "store it in a Secret and set %s to its name: its keys become variables of the initializer"


class LiteralSecret(Invalid):
    """A request contains literal credentials; the message names the fields, but no values."""


def credential_kind(text: str) -> str | None:
    """Return what kind of credential a text contains, such as `a GitHub token`; None if there is none."""
    return next((what for what, pattern in _COMPILED_PATTERNS if pattern.search(text)), None)


def reject_literals(fields: dict[str, Any]) -> None:
    """Check the fields of a request. Raises LiteralSecret."""
    problems = list(literal_problems(fields))
    if problems:
        raise LiteralSecret("; ".join(map(str, problems)), problems=problems)


def literal_problems(fields: dict[str, Any]) -> Iterator[Problem]:
    """Yield every field that contains a credential, at any depth."""
    for field, value in fields.items():
        if field in ("env", "dataset_env", "model_env") and isinstance(value, dict):
            yield from _check_variables(field, value)
        elif isinstance(value, str):
            if what := credential_kind(value):
                yield _problem(field, what, _advice_for(field))
        elif field in ("labels", "annotations"):
            yield from _check_nested(field, value, "labels and annotations are public; store it in a Secret")
        else:
            yield from _check_nested(field, value, _ADVICE_FOR_TEXT)


def _check_nested(path: str, value: Any, advice: str) -> Iterator[Problem]:
    """Check texts in lists and objects; of a container variable (name and value) also the name."""
    if isinstance(value, str):
        if what := credential_kind(value):
            yield _problem(path, what, advice)
    elif isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(value.get("value"), str):
        yield from _check_variables(path, {value["name"]: value["value"]})
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _check_nested(f"{path}.{key}", item, advice)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _check_nested(f"{path}[{index}]", item, advice)


def _check_variables(field: str, variables: dict[str, Any]) -> Iterator[Problem]:
    for name, value in variables.items():
        if not isinstance(value, str):
            yield from _check_nested(f"{field}.{name}", value, _ADVICE_FOR_TEXT)
            continue
        what = credential_kind(value)
        if what is None and _CREDENTIAL_NAMES.search(name) and not _REFERENCE.fullmatch(value):
            what = "a credential, by its name"
        if what:
            yield _problem(f"{field}.{name}", what, _ADVICE_FOR_ENV % (name, field))


def _advice_for(field: str) -> str:
    step = field.removesuffix("_uri")
    return _ADVICE_FOR_STEP % f"{step}_secret" if step in ("dataset", "model") else _ADVICE_FOR_TEXT


def _problem(field: str, what: str, advice: str) -> Problem:
    return Problem(field, f"looks like {what}; {advice}", "FieldValueForbidden")
