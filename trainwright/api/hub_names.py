"""A bare `org/name`, which Trainer 2.0 took for a repository of the Hugging Face Hub, as the URI that is meant."""

from __future__ import annotations

import logging
import re

_BARE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*$")
log = logging.getLogger(__name__)


def is_bare_name(text: str) -> bool:
    return _BARE.match(text) is not None


def with_scheme(text: str) -> str:
    """`hf://org/name` for `org/name`, anything else as it is. For what people give to us; servers and manifests stay strict."""
    if not is_bare_name(text):
        return text
    log.warning("a bare name is taken for one of the Hugging Face Hub given=%s meant=hf://%s", text, text)
    return f"hf://{text}"
