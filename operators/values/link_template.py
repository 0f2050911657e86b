"""The templates of a connection for links into dashboards: a fixed http(s) address with names of a job, which are escaped."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit

PLACEHOLDERS = ("namespace", "name", "uid")
"""What a template may name: the TrainJob's namespace, name and UID."""
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def check_link_template(parameter: str, template: str) -> str:
    """Return a template that is safe to link to; empty without one. Raises ValueError naming the parameter, without its text."""
    if not template:
        return ""
    if unknown := [name for name in _PLACEHOLDER.findall(template) if name not in PLACEHOLDERS]:
        known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise ValueError(f"{parameter}: the placeholder {{{unknown[0][:40]}}} is unknown; known: {known}")
    plain = _PLACEHOLDER.sub("x", template)
    try:
        parts = urlsplit(plain)
    except ValueError:
        raise ValueError(f"{parameter}: expected a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not _is_printable(plain):
        raise ValueError(f"{parameter}: expected a URL such as https://HOST/trainjobs/{{namespace}}/{{name}}")
    if parts.username is not None or parts.netloc != urlsplit(template).netloc:
        raise ValueError(f"{parameter}: its host must be fixed, and have no user name and password")
    return template


def fill_link_template(template: str, **values: str) -> str:
    """Return the URL of a checked template, with escaped values; empty without a template or without one of its values."""
    if not template or not all(values.get(name) for name in _PLACEHOLDER.findall(template)):
        return ""
    return _PLACEHOLDER.sub(lambda found: quote(values[found[1]], safe=""), template)


def _is_printable(text: str) -> bool:
    return text.isascii() and not re.search(r"[\x00-\x20\x7f\"'<>\\`{}]", text)
