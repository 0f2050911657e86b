"""A bare `org/name`, which Trainer 2.0 accepted as a repository of the Hugging Face Hub, as a URI."""

from __future__ import annotations

import logging
import re

_BARE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*$")
log = logging.getLogger(__name__)


def is_bare_name(text: str) -> bool:
    return _BARE.match(text) is not None


def with_scheme(text: str) -> str:
    """Return `hf://org/name` for `org/name`, anything else unchanged. For user input; servers and manifests are strict."""
    if not is_bare_name(text):
        return text
    log.warning("a bare name is taken for one of the Hugging Face Hub given=%s meant=hf://%s", text, text)
    return f"hf://{text}"
