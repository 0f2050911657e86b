"""Recognises literal credentials, by their format or by the name of their variable or option. Pure, and imports nothing of ours,
since Airflow operators use it when a DAG is parsed.

Any input is searched in linear time: repetitions are bounded, or possessive and ended by a character that no start contains.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

_NO_REFERENCE = r"(?![\"']?[$*{<(\[%])"
_PATTERNS = (
    ("a Hugging Face token", "hf_", r"\bhf_[A-Za-z0-9]{20}"),
    ("an AWS access key", "a", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("a GitHub token", "gh", r"\bgh[pousr]_[A-Za-z0-9]{30}"),
    ("a GitHub token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{22}"),
    ("a GitLab token", "glpat-", r"\bglpat-[A-Za-z0-9_-]{20}"),
    ("a Slack token", "xox", r"\bxox[abeprs]-[A-Za-z0-9-]{10}"),
    ("a Google API key", "aiza", r"\bAIza[A-Za-z0-9_-]{35}"),
    ("an API key", "sk-", r"\bsk-(?:[a-z]{1,16}-){0,3}[A-Za-z0-9_]{20}"),
    ("an API key", "sk-ant-", r"\bsk-ant-[a-z0-9]{1,10}-[A-Za-z0-9_-]{20}"),
    (
        "a JSON web token",
        ".eyj",
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,100000}+\.eyJ[A-Za-z0-9_-]{8,100000}+\.[A-Za-z0-9_-]{8}",
    ),
    ("a private key", "private key", r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"),
    (
        "a URI with a password",
        "://",
        r"(?<=[A-Za-z0-9+.\ue000-])://[^/\s:@?#]{0,256}+:(?!\$[({]|\*{1,256}+\ue000?@)[^/\s@?#]{1,4096}+@",
    ),
    (
        "a signed URI",
        "sig",
        r"(?:^|[?&;\"'\s])(?:sig|X-Amz-Signature|X-Goog-Signature)=" + _NO_REFERENCE + r"[^&\s\"']{16}",
    ),
    (
        "a connection string with a key",
        "shared",
        r"(?i)\b(?:SharedAccessKey|SharedAccessSignature)=" + _NO_REFERENCE + r"[^;\s]{16}",
    ),
    ("a connection string with a key", "accountkey", r"(?i)\bAccountKey=" + _NO_REFERENCE + r"[^;\s]{16}"),
    ("a connection string with a password", "p", r"(?i);\s{0,4}(?:password|pwd)=" + _NO_REFERENCE + r"[^;\s]{3}"),
    (
        "a connection string with a password",
        "password",
        r"(?i)\b(?:user|host|dbname)=[^\s;=]{1,128} {1,4}password=" + _NO_REFERENCE + r"[^;\s]{3}",
    ),
    (
        "a bearer token",
        "bearer",
        r"(?i)\bbearer\s{1,4}(?=[A-Z._~+/=-]{0,64}[0-9])[A-Z0-9._~+/=-]{16}",
    ),
    ("a password in a header", "basic", r"(?i)\bauthorization[\"']?:\s{0,4}[\"']?basic\s{1,4}[A-Z0-9+/]{8}"),
)
"""What, a text in lower case that it contains, and a pattern."""
_COMPILED_PATTERNS = tuple((what, part, re.compile(pattern)) for what, part, pattern in _PATTERNS)
_CREDENTIAL_NAMES = re.compile(
    r"""
      (?:PASSWORD|PASSWD|PASSPHRASE|APIKEY)$
    | (?:^|_)(?:DB|DATABASE|PG|POSTGRES|MYSQL|MONGO|REDIS|SMTP|FTP|SSH|USER|ADMIN|ROOT|PROXY|HTTP|AUTH|REGISTRY)_?PASS$
    | (?:^|_)(?:DB|DATABASE|PG|POSTGRES|MYSQL|MONGO|REDIS)_PWD$
    | (?:^|_)(?:API_KEY|SECRET_KEY|SECRET_ACCESS_KEY|PRIVATE_KEY|STORAGE_KEY|ACCOUNT_KEY|ENCRYPTION_KEY|SIGNING_KEY)$
    | (?:^|_)(?:CLIENT|APP|API|AUTH|JWT|OAUTH|CONSUMER|WEBHOOK|COOKIE|SESSION|SHARED)_SECRET$
    | (?:^|_)(?:API|ACCESS|AUTH|BEARER|REFRESH|SAS|SESSION|SECURITY|HF|HUB|HUGGINGFACE|HUGGING_FACE|GITHUB|GH|GITLAB|SLACK|BOT
        |TRACKING|WANDB|VAULT|DOCKER|REGISTRY|DATABRICKS|NPM|PYPI|DEPLOY|OAUTH|OAUTH2|JUPYTER|PRIVATE)_?TOKEN$
    """,
    re.IGNORECASE | re.VERBOSE,
)
_REFERENCE = re.compile(
    r"""
      \$[({]?[A-Za-z_][A-Za-z0-9_]*+[)}]? | \*+ | .*\*\*\*\ue000.* | <[^<>]*+> | \{\{.*\}\} |
    | (?:true|false|yes|no|on|off|none|null|empty|dummy|unused|[0-9]{1,4})
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
"""Not credentials: `$(VARIABLE)`, asterisks, a text with a template in it, `<pad>`, a template, an empty text, switches, `EMPTY`."""
_OPTION = re.compile(r"--?([A-Za-z][A-Za-z0-9_.-]{0,100}+)(?:=(.*))?", re.DOTALL)
_ASSIGNMENT = re.compile(r"""(?P<name>[A-Za-z][A-Za-z0-9_]{2,60}+)["']?\s{0,2}[=:]\s{0,2}["']?(?P<value>[^\s"',;]{1,512}+)""")
_MAX_LINE = 4096
"""Characters of a line of a log that are looked at."""
_VARIABLES = ("env", "dataset_env", "model_env")
"""Settings that map names to values, wherever they are."""
_TEMPLATE = re.compile(
    r"\{\{(?:(?!\{\{).){0,2000}?\}\}|\{%(?:(?!\{%).){0,2000}?%\}|\{#(?:(?!\{#).){0,2000}?#\}",  # another beginning ends it: linear
    re.DOTALL,
)
_MARK = "***\ue000"
"""In place of a template: asterisks alone may be part of a password, and no password has a character of private use."""


class Literal(NamedTuple):
    """A credential that was found."""

    path: str
    what: str
    value: str
    variable: str = ""
    """The name of its environment variable."""


def credential_kind(text: str) -> str | None:
    """Return what kind of credential a text contains, such as `a GitHub token`; None if there is none."""
    lower = text.lower()
    return next((what for what, part, pattern in _COMPILED_PATTERNS if part in lower and pattern.search(text)), None)


def masked(text: str) -> str:
    """Return a message or a line of a log with `***` for each credential in it that is known by its format."""
    lower = text.lower()
    for part, pattern in _masks():
        if part in lower:
            text = pattern.sub("***", text)
    return text


@cache
def _masks() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """The patterns with the rest of what they begin: a key to its end, all others to the next space, quote or bracket."""
    rest = {"private key": r"[\s\S]{0,10000}"}
    return tuple((part, re.compile(pattern + rest.get(part, r"[^\s\"'<>]{0,10000}"))) for _, part, pattern in _PATTERNS)


def credential_in(line: str) -> str | None:
    """Return what kind of credential a line of a log contains, also in `NAME=value` or `"name": "value"`; None if there is none."""
    text = line[:_MAX_LINE]
    if (what := credential_kind(text)) is not None:
        return what
    named = any(_is_literal(match["name"], match["value"]) for match in _ASSIGNMENT.finditer(text))
    return "a credential, by its name" if named else None


def without_templates(value: Any) -> Any:
    """Return a value of an edge with a mark for each template and each value that only a run knows, at any depth.

    A template that contains a credential itself stays.
    """
    if isinstance(value, str):
        return _TEMPLATE.sub(lambda found: found[0] if credential_kind(found[0]) else _MARK, value)
    if isinstance(value, Mapping):
        return {key: without_templates(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [without_templates(entry) for entry in value]
    return value


def find_literals(path: str, value: Any) -> Iterator[Literal]:
    """Yield the credentials in a setting or a field of a manifest, at any depth, keys and JSON in texts too; `path` is its name."""
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if isinstance(value, str):
        found = _in_json(path, value)
        if not found and (what := credential_kind(value)):
            found = [Literal(path, what, value)]
        yield from found
    elif isinstance(value, Mapping):
        are_variables = path.rpartition(".")[2] in _VARIABLES
        for key, entry in value.items():
            is_variable = are_variables or (key == "value" and isinstance(value.get("name"), str))  # of a container
            name = str(key) if are_variables or not is_variable else value["name"]
            if what := credential_kind(name):
                yield Literal(path, what, name)
                name = "***"
            inner = f"{path}.{name}"
            yield from _in_variable(inner, name, entry) if is_variable else find_literals(inner, entry)
    elif isinstance(value, list | tuple | set | frozenset):
        value = list(value)
        for index, entry in enumerate(value):
            found = list(find_literals(f"{path}[{index}]", entry))
            if not found and isinstance(entry, str) and (secret := _option_value(entry, value[index + 1 : index + 2])):
                found = [Literal(f"{path}[{index}]", "an option with a credential, by its name", secret)]
            yield from found


def _in_variable(path: str, name: str, value: Any) -> Iterator[Literal]:
    if not isinstance(value, str):
        yield from find_literals(path, value)
    elif what := credential_kind(value) or ("a credential, by its name" if _is_literal(name, value) else None):
        yield Literal(path, what, value, name)


def _in_json(path: str, text: str) -> list[Literal]:
    if text.lstrip()[:1] not in ("{", "["):
        return []
    try:
        return list(find_literals(path, json.loads(text)))
    except (ValueError, RecursionError):  # the text as a whole is still searched
        return []


def _is_literal(name: str, value: str) -> bool:
    return bool(_CREDENTIAL_NAMES.search(name)) and not _REFERENCE.fullmatch(value)


def _option_value(word: str, following: Sequence[Any]) -> str:
    """Return the credential in a word of a command line such as `--password=VALUE`, or in the word after it; else an empty text."""
    option = _OPTION.fullmatch(word)
    if option is None:
        return ""
    value = option[2]
    if value is None:
        value = following[0] if following and isinstance(following[0], str) and not following[0].startswith("-") else ""
    return value if _is_literal(option[1].replace("-", "_"), value) else ""
