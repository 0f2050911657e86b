"""`$(NAME)` in commands, variables and sub-paths, as Kubernetes expands it.

Source: third_party/forked/golang/expansion of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand_references(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by a variable's value.

    `$$` is an escaped `$`; a reference ends at the next `)`; unknown names and all other text are kept.
    """

    def replace(match: re.Match[str]) -> str:
        return "$" if match[1] is None else variables.get(match[1], match[0])

    return _REFERENCE.sub(replace, text)


def references_in(text: str) -> list[str]:
    """Return the names that a text refers to, in order."""
    return [match[1] for match in _REFERENCE.finditer(text) if match[1] is not None]
