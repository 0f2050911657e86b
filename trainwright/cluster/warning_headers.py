"""The warnings of an API server: deprecated fields, unknown fields, advice of webhooks; `Warning` headers of RFC 7234.

An API server sends `299 - "text"`; other codes come from caches on the way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from trainwright.text.one_line import one_line

OnWarning = Callable[[str], None]
_WARNING = re.compile(r'(?P<code>\d{3}) +\S+ +"(?P<text>(?:\\.|[^"\\])*)"')
_CODE = "299"
_ESCAPE = re.compile(r"\\(.)")


def report_warnings(headers: Any, on_warning: OnWarning | None) -> None:
    """Call `on_warning` for each warning in the headers of a response; `headers` is a multidict of urllib3, or None."""
    if on_warning is None or headers is None:
        return
    values = headers.getlist("Warning") if hasattr(headers, "getlist") else filter(None, [headers.get("Warning")])
    for text in parse_warnings(values):
        on_warning(text)


def parse_warnings(values: Iterable[str]) -> list[str]:
    """Return the texts in the values of `Warning` headers, each as one line; what is no warning of an API server is skipped."""
    found = [match for value in values for match in _WARNING.finditer(value) if match["code"] == _CODE]
    texts = [one_line(_ESCAPE.sub(r"\1", _decoded(match["text"]))) for match in found]
    return [text for text in texts if text]


def _decoded(text: str) -> str:
    """Return a header's text, which HTTP libraries decode as Latin-1, as the UTF-8 that API servers send."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text
