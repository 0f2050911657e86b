"""Texts of others, made fit for our messages: URIs and the errors of libraries may contain passwords, signatures or tokens."""

from __future__ import annotations

import re

from trainwright.text.one_line import one_line

_MAX = 300
_USER = re.compile(r"(?<=://)[^/\s@]{1,512}+@")
_PASSWORD = re.compile(r"(?<=://)[^/\s@:]{0,256}+:[^/\s@]{0,512}+@")
_QUERY = re.compile(r"\?[^\s'\"<>]++")
_HEADER = re.compile(r"(?i)\b(bearer|basic|authorization:?|x-amz-security-token:?)\s{1,4}(?:(?:bearer|basic)\s{1,4})?\S++")
_FIRST = 4096
"""Characters that are looked at."""


def shown_uri(text: str) -> str:
    """Return a URI that a user has given, quoted for a message: without a password and without a query, which may be a signature."""
    return repr(_QUERY.sub("?...", _PASSWORD.sub("***@", text[:_FIRST])))


def without_user(text: str) -> str:
    """Return a text whose URIs have no user name and password."""
    return _USER.sub("", text)


def without_credentials(error: object) -> str:
    """Return the first line of an error's text without user names and queries of addresses, tokens and control characters."""
    lines = str(error)[:_FIRST].strip().splitlines()
    text = _QUERY.sub("", without_user(lines[0] if lines else ""))
    return one_line(_HEADER.sub(r"\1 ***", text))[:_MAX] or type(error).__name__
