"""The short forms of a source that users may give: `org/name` for a repository of the Hugging Face Hub, and an absolute path."""

from __future__ import annotations

import logging
import os
import re
from urllib.parse import quote

_BARE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*$")
log = logging.getLogger(__name__)


def is_bare_name(text: str) -> bool:
    """Whether a text is `org/name`, which Trainer 2.0 accepted as a repository of the hub."""
    return _BARE.match(text) is not None


def with_scheme(text: str) -> str:
    """Return `hf://org/name` for `org/name`, `file:///path` for an absolute path, anything else unchanged.

    For user input; servers and manifests are strict.
    """
    if text.startswith("/"):
        return f"file://{quote(os.fsencode(text))}"
    if not is_bare_name(text):
        return text
    log.warning("a bare name is taken for one of the Hugging Face Hub given=%s meant=hf://%s", text, text)
    return f"hf://{text}"
